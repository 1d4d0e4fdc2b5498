#include "work/fft_line.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace softgpu::fft {
namespace {

// A prime factor above this makes a convolution the shorter way.
constexpr size_t kLargestFactor = 50;

Complex operator+(Complex a, Complex b) {
  return {a.real + b.real, a.imaginary + b.imaginary};
}
Complex operator-(Complex a, Complex b) {
  return {a.real - b.real, a.imaginary - b.imaginary};
}
Complex operator*(Complex a, Complex b) {
  return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}
Complex operator*(double a, Complex b) {
  return {a * b.real, a * b.imaginary};
}
Complex conjugate(Complex a) {
  return {a.real, -a.imaginary};
}
Complex times_minus_i(Complex a) {
  return {a.imaginary, -a.real};
}

// Fours first, then ascending primes; empty if one is too large.
std::vector<size_t> factors_of(size_t n) {
  std::vector<size_t> factors;
  const auto divide_by = [&](size_t factor) {
    for (; n % factor == 0; n /= factor) factors.push_back(factor);
  };
  divide_by(4);
  for (size_t factor = 2; factor <= kLargestFactor && n > 1; ++factor) divide_by(factor);
  if (n > 1) factors.clear();
  return factors;
}

// The smallest length from `least` on without other factors than 2, 3 and 5.
size_t smooth_size(size_t least) {
  for (size_t n = least;; ++n) {
    size_t rest = n;
    for (const size_t factor : {2, 3, 5}) {
      while (rest % factor == 0) rest /= factor;
    }
    if (rest == 1) return n;
  }
}

// One step of a transform whose passes leave the numbers in order (Stockham): of `stride` lines
// side by side, each `parts * radix` long.
struct Pass {
  size_t radix, parts, stride;
  const Complex* roots;  // of the whole line, which is parts * radix * stride long
  const Complex* from;
  Complex* to;

  Complex twiddle(size_t part, size_t j) const { return roots[part * j * stride]; }
  const Complex* in(size_t part, size_t k) const { return from + stride * (part + parts * k); }
  Complex* out(size_t part, size_t j) const { return to + stride * (radix * part + j); }
};

void pass_2(const Pass& p) {
  for (size_t part = 0; part < p.parts; ++part) {
    const Complex w1 = p.twiddle(part, 1);
    const Complex *a = p.in(part, 0), *b = p.in(part, 1);
    Complex *x = p.out(part, 0), *y = p.out(part, 1);
    for (size_t q = 0; q < p.stride; ++q) {
      const Complex sum = a[q] + b[q], difference = a[q] - b[q];
      x[q] = sum;
      y[q] = w1 * difference;
    }
  }
}

void pass_3(const Pass& p) {
  constexpr double kSine = std::numbers::sqrt3 / 2;
  for (size_t part = 0; part < p.parts; ++part) {
    const Complex w1 = p.twiddle(part, 1), w2 = p.twiddle(part, 2);
    const Complex *a = p.in(part, 0), *b = p.in(part, 1), *c = p.in(part, 2);
    Complex* x = p.out(part, 0);
    for (size_t q = 0; q < p.stride; ++q) {
      const Complex sum = b[q] + c[q], turned = kSine * times_minus_i(b[q] - c[q]);
      const Complex middle = a[q] - 0.5 * sum;
      x[q] = a[q] + sum;
      x[p.stride + q] = w1 * (middle + turned);
      x[2 * p.stride + q] = w2 * (middle - turned);
    }
  }
}

void pass_4(const Pass& p) {
  for (size_t part = 0; part < p.parts; ++part) {
    const Complex w1 = p.twiddle(part, 1), w2 = p.twiddle(part, 2), w3 = p.twiddle(part, 3);
    const Complex *a = p.in(part, 0), *b = p.in(part, 1), *c = p.in(part, 2), *d = p.in(part, 3);
    Complex* x = p.out(part, 0);
    for (size_t q = 0; q < p.stride; ++q) {
      const Complex ac = a[q] + c[q], bd = b[q] + d[q];
      const Complex a_c = a[q] - c[q], b_d = times_minus_i(b[q] - d[q]);
      x[q] = ac + bd;
      x[p.stride + q] = w1 * (a_c + b_d);
      x[2 * p.stride + q] = w2 * (ac - bd);
      x[3 * p.stride + q] = w3 * (a_c - b_d);
    }
  }
}

void pass_5(const Pass& p) {
  const Complex r1 = unit_root(1, 5), r2 = unit_root(2, 5);
  for (size_t part = 0; part < p.parts; ++part) {
    const Complex *a = p.in(part, 0), *b = p.in(part, 1), *c = p.in(part, 2), *d = p.in(part, 3),
                  *e = p.in(part, 4);
    Complex* x = p.out(part, 0);
    for (size_t q = 0; q < p.stride; ++q) {
      const Complex be = b[q] + e[q], cd = c[q] + d[q];
      const Complex b_e = times_minus_i(b[q] - e[q]), c_d = times_minus_i(c[q] - d[q]);
      const Complex even_1 = a[q] + r1.real * be + r2.real * cd;
      const Complex even_2 = a[q] + r2.real * be + r1.real * cd;
      const Complex odd_1 = -r1.imaginary * b_e + -r2.imaginary * c_d;
      const Complex odd_2 = -r2.imaginary * b_e + r1.imaginary * c_d;
      x[q] = a[q] + be + cd;
      x[p.stride + q] = p.twiddle(part, 1) * (even_1 + odd_1);
      x[2 * p.stride + q] = p.twiddle(part, 2) * (even_2 + odd_2);
      x[3 * p.stride + q] = p.twiddle(part, 3) * (even_2 - odd_2);
      x[4 * p.stride + q] = p.twiddle(part, 4) * (even_1 - odd_1);
    }
  }
}

// By the definition.
void pass_any(const Pass& p) {
  const size_t step = p.parts * p.stride;  // between the roots of order `radix`
  for (size_t part = 0; part < p.parts; ++part) {
    for (size_t j = 0; j < p.radix; ++j) {
      Complex* const x = p.out(part, j);
      const Complex w = p.twiddle(part, j);
      for (size_t q = 0; q < p.stride; ++q) {
        Complex sum = p.in(part, 0)[q];
        for (size_t k = 1; k < p.radix; ++k)
          sum = sum + p.roots[j * k % p.radix * step] * p.in(part, k)[q];
        x[q] = w * sum;
      }
    }
  }
}

void run_pass(const Pass& p) {
  switch (p.radix) {
    case 2:
      return pass_2(p);
    case 3:
      return pass_3(p);
    case 4:
      return pass_4(p);
    case 5:
      return pass_5(p);
    default:
      return pass_any(p);
  }
}

}  // namespace

// The longer format's functions are the same on every processor, those of double are not. The
// angle is at most an eighth of a turn, so roots that mirror each other are each other's mirror.
Complex unit_root(uint64_t k, uint64_t n) {
  const uint64_t quarter = 4 * k / n, rest = 4 * k % n;
  const bool mirrored = 2 * rest > n;
  const auto part = static_cast<long double>(mirrored ? n - rest : rest);
  const long double angle =
      std::numbers::pi_v<long double> / 2 * part / static_cast<long double>(n);
  auto x = static_cast<double>(std::cos(angle)), y = static_cast<double>(std::sin(angle));
  if (mirrored) std::swap(x, y);
  switch (quarter) {
    case 0:
      return {x, -y};
    case 1:
      return {-y, -x};
    case 2:
      return {-x, y};
    default:
      return {y, x};
  }
}

Line::Line(size_t size) : size_(size), factors_(factors_of(size)) {
  if (factors_.empty()) {
    if (size_ > 1) prepare_convolution();
    return;
  }
  roots_.reserve(size_);
  for (size_t k = 0; k < size_; ++k) roots_.push_back(unit_root(k, size_));
}

void Line::prepare_convolution() {
  longer_ = std::make_unique<Line>(smooth_size(2 * size_ - 1));
  filter_.resize(longer_->size());
  const double scale = 1 / static_cast<double>(filter_.size());
  size_t square = 0;  // k^2 modulo 2 * size
  for (size_t k = 0; k < size_; ++k) {
    chirp_.push_back(unit_root(square, 2 * size_));
    filter_[k] = scale * conjugate(chirp_[k]);
    if (k) filter_[filter_.size() - k] = filter_[k];
    square = (square + 2 * k + 1) % (2 * size_);
  }
  std::vector<Complex> scratch(longer_->scratch_size());
  longer_->forward(filter_.data(), scratch.data());
}

size_t Line::scratch_size() const {
  return longer_ ? longer_->size() + longer_->scratch_size() : size_;
}

void Line::run(Complex* data, Complex* scratch, bool inverse) const {
  // The inverse is the conjugate of the transform of the conjugate.
  if (inverse) std::transform(data, data + size_, data, conjugate);
  forward(data, scratch);
  if (inverse) std::transform(data, data + size_, data, conjugate);
}

void Line::forward(Complex* data, Complex* scratch) const {
  if (longer_) return by_convolution(data, scratch);
  by_factors(data, scratch);
}

void Line::by_factors(Complex* data, Complex* scratch) const {
  Complex *from = data, *to = scratch;
  size_t stride = 1;
  for (const size_t radix : factors_) {
    run_pass({radix, size_ / stride / radix, stride, roots_.data(), from, to});
    stride *= radix;
    std::swap(from, to);
  }
  if (from != data) std::copy_n(from, size_, data);
}

void Line::by_convolution(Complex* data, Complex* scratch) const {
  Complex* const product = scratch;
  Complex* const rest = scratch + longer_->size();
  for (size_t k = 0; k < size_; ++k) product[k] = data[k] * chirp_[k];
  std::fill(product + size_, product + longer_->size(), Complex{});
  longer_->run(product, rest, false);
  for (size_t k = 0; k < longer_->size(); ++k) product[k] = product[k] * filter_[k];
  longer_->run(product, rest, true);
  for (size_t k = 0; k < size_; ++k) data[k] = product[k] * chirp_[k];
}

}  // namespace softgpu::fft
