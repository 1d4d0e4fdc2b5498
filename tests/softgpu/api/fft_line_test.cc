// Transforms on the host against the definition, in more digits.
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "check.h"
#include "work/fft.h"

namespace {

using softgpu::fft::Complex;
using softgpu::fft::Layout;
using softgpu::fft::Line;
using softgpu::fft::Number;
using softgpu::fft::Plan;
using softgpu::fft::Shape;
using softgpu::fft::Sizes;
using Long = std::complex<long double>;
using Signal = std::vector<Complex>;

Signal signal(size_t count, uint64_t seed) {
  Signal out(count);
  uint64_t state = seed * 2654435761u + 1;
  const auto next = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state >> 11) * 0x1p-52 - 1;
  };
  for (Complex& value : out) value = {next(), next()};
  return out;
}

Long root(size_t k, size_t n, bool inverse) {
  const long double angle = 2 * std::numbers::pi_v<long double> * static_cast<long double>(k) /
                            static_cast<long double>(n);
  return {std::cos(angle), inverse ? std::sin(angle) : -std::sin(angle)};
}

std::vector<Long> definition(const Signal& in, bool inverse) {
  const size_t n = in.size();
  std::vector<Long> roots, out(n);
  for (size_t k = 0; k < n; ++k) roots.push_back(root(k, n, inverse));
  for (size_t k = 0; k < n; ++k) {
    for (size_t j = 0; j < n; ++j) out[k] += roots[j * k % n] * Long(in[j].real, in[j].imaginary);
  }
  return out;
}

// The largest error, by the root mean square of the right numbers.
double error(const Signal& got, const std::vector<Long>& right) {
  long double worst = 0, square = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    worst = std::max(worst, std::abs(right[i] - Long(got[i].real, got[i].imaginary)));
    square += std::norm(right[i]);
  }
  return static_cast<double>(worst / std::sqrt(square / static_cast<long double>(right.size())));
}

double error_of_line(size_t n, bool inverse) {
  const Line line(n);
  Signal data = signal(n, n), scratch(line.scratch_size());
  const auto right = definition(data, inverse);
  line.run(data.data(), scratch.data(), inverse);
  return error(data, right);
}

// By the definition in each dimension, of numbers in a grid without gaps.
std::vector<Long> definition_of_grid(const Signal& in, const Sizes& sizes, bool inverse) {
  const auto [a, b, c] = sizes;
  std::vector<Long> out;
  for (int64_t u = 0; u < a; ++u)
    for (int64_t v = 0; v < b; ++v)
      for (int64_t w = 0; w < c; ++w) {
        Long sum = 0;
        for (int64_t i = 0; i < a; ++i)
          for (int64_t j = 0; j < b; ++j)
            for (int64_t k = 0; k < c; ++k) {
              const Complex x = in[static_cast<size_t>((i * b + j) * c + k)];
              const auto of = [inverse](int64_t p, int64_t n) {
                return root(static_cast<size_t>(p % n), static_cast<size_t>(n), inverse);
              };
              sum += Long(x.real, x.imaginary) * of(i * u, a) * of(j * v, b) * of(k * w, c);
            }
        out.push_back(sum);
      }
  return out;
}

// A grid that is part of a larger one, with `gap` elements more in each dimension.
Layout spread(const Shape& shape, bool complex, int64_t gap) {
  Layout side{Number::kDouble, complex, {}, 0};
  int64_t stride = 1 + gap;
  for (int i = shape.rank - 1; i >= 0; --i) {
    side.strides[static_cast<size_t>(i)] = stride;
    stride *= shape.sizes[static_cast<size_t>(i)] + gap;
  }
  side.apart = stride + gap;
  return side;
}

// Calls body(index in the grid, index in memory) for all elements of one signal.
template <class Body>
void elements(const Shape& shape, const Layout& side, int64_t item, Body body) {
  Sizes n{1, 1, 1}, strides{};
  for (int i = 0; i < shape.rank; ++i) {
    n[static_cast<size_t>(i)] = shape.extent(side, i);
    strides[static_cast<size_t>(i)] = side.strides[static_cast<size_t>(i)];
  }
  for (int64_t i = 0; i < n[0]; ++i)
    for (int64_t j = 0; j < n[1]; ++j)
      for (int64_t k = 0; k < n[2]; ++k)
        body(Sizes{i, j, k}, static_cast<size_t>(item * side.apart + i * strides[0] +
                                                 j * strides[1] + k * strides[2]));
}

// Of all three dimensions, so that those beyond the rank are 1.
Sizes filled(const Shape& shape) {
  Sizes sizes{1, 1, 1};
  for (int i = 0; i < shape.rank; ++i)
    sizes[static_cast<size_t>(i)] = shape.sizes[static_cast<size_t>(i)];
  return sizes;
}

size_t at(const Sizes& sizes, const Sizes& index) {
  return static_cast<size_t>((index[0] * sizes[1] + index[1]) * sizes[2] + index[2]);
}

constexpr double kUntouched = 77;

void check_complex(Shape shape, bool inverse, int64_t gap) {
  shape.in = spread(shape, true, gap);
  shape.out = spread(shape, true, 2 * gap);
  const Sizes sizes = filled(shape);
  const auto count = static_cast<size_t>(sizes[0] * sizes[1] * sizes[2]);
  Signal in(shape.bytes(shape.in) / sizeof(Complex));
  Signal out(shape.bytes(shape.out) / sizeof(Complex), {kUntouched, kUntouched});
  for (int64_t item = 0; item < shape.batch; ++item) {
    const Signal one = signal(count, static_cast<uint64_t>(item + 1));
    elements(shape, shape.in, item,
             [&](const Sizes& index, size_t place) { in[place] = one[at(sizes, index)]; });
  }
  Plan(shape).run(in.data(), out.data(), inverse);
  size_t written = 0;
  for (int64_t item = 0; item < shape.batch; ++item) {
    Signal got(count);
    elements(shape, shape.out, item, [&](const Sizes& index, size_t place) {
      got[at(sizes, index)] = out[place];
      out[place] = {kUntouched, kUntouched};
      ++written;
    });
    const Signal one = signal(count, static_cast<uint64_t>(item + 1));
    CHECK(error(got, definition_of_grid(one, sizes, inverse)) < 1e-14);
  }
  CHECK_EQ(written, count * static_cast<size_t>(shape.batch));
  for (const Complex& value : out) CHECK(value.real == kUntouched && value.imaginary == kUntouched);
}

// To complex numbers and back: the values, the symmetry, and what lies between the elements.
void check_real(Shape shape, int64_t gap) {
  const Layout real = spread(shape, false, gap), complex = spread(shape, true, 2 * gap);
  shape.in = real, shape.out = complex;
  const Sizes sizes = filled(shape);
  const auto count = static_cast<size_t>(sizes[0] * sizes[1] * sizes[2]);
  std::vector<double> in(shape.bytes(real) / sizeof(double));
  Signal out(shape.bytes(complex) / sizeof(Complex));
  for (size_t i = 0; i < in.size(); ++i) in[i] = signal(1, i + 5)[0].real;
  Plan(shape).run(in.data(), out.data(), true);  // always forward
  for (int64_t item = 0; item < shape.batch; ++item) {
    Signal one(count), got;
    std::vector<Long> right;
    elements(shape, real, item,
             [&](const Sizes& i, size_t place) { one[at(sizes, i)] = {in[place], 0}; });
    const auto all = definition_of_grid(one, sizes, false);
    elements(shape, complex, item, [&](const Sizes& i, size_t place) {
      got.push_back(out[place]);
      right.push_back(all[at(sizes, i)]);
    });
    CHECK(error(got, right) < 1e-14);
    CHECK_EQ(out[static_cast<size_t>(item * complex.apart)].imaginary, 0.0);
  }
  Shape back = shape;
  back.in = complex, back.out = real;
  std::vector<double> again(in.size(), kUntouched);
  Plan(back).run(out.data(), again.data(), false);  // always inverse
  size_t same = 0;
  for (int64_t item = 0; item < shape.batch; ++item) {
    elements(back, real, item, [&](const Sizes&, size_t place) {
      same += std::fabs(again[place] / static_cast<double>(count) - in[place]) < 1e-14;
      again[place] = kUntouched;
    });
  }
  CHECK_EQ(same, count * static_cast<size_t>(shape.batch));
  for (const double value : again) CHECK_EQ(value, kUntouched);
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = [] {
    std::vector<Shape> made;
    for (const Sizes& n : {Sizes{1}, Sizes{2}, Sizes{7}, Sizes{12}, Sizes{59}})
      made.push_back({1, n, 3, {}, {}});
    for (const Sizes& n : {Sizes{1, 1}, Sizes{2, 3}, Sizes{6, 5}, Sizes{5, 8}, Sizes{1, 9}})
      made.push_back({2, n, 2, {}, {}});
    for (const Sizes& n : {Sizes{1, 2, 1}, Sizes{2, 3, 4}, Sizes{4, 1, 7}, Sizes{5, 6, 3}})
      made.push_back({3, n, 2, {}, {}});
    return made;
  }();
  return all;
}

}  // namespace

TEST(lines_of_many_lengths_match_the_definition) {
  std::vector<size_t> sizes{97, 101, 128, 169, 210, 256, 257, 343, 360, 400, 509, 512, 1009, 1021};
  for (size_t n = 1; n <= 64; ++n) sizes.push_back(n);
  sizes.insert(sizes.end(), {1024, 1250, 2053, 2187, 4096});
  for (const size_t n : sizes) {
    const double forward = error_of_line(n, false), inverse = error_of_line(n, true);
    if (forward < 2e-14 && inverse < 2e-14) continue;
    CHECK_EQ(n, 0u);
    CHECK_EQ(forward, inverse);
  }
}

// Quarters and eighths of a turn are exact, and mirror each other.
TEST(roots_are_symmetric) {
  for (const uint64_t n : {8u, 24u, 360u, 1000u}) {
    for (uint64_t k = 0; k < n; ++k) {
      const Complex a = softgpu::fft::unit_root(k, n);
      const Complex mirrored = softgpu::fft::unit_root((n - k) % n, n);
      const Complex opposite = softgpu::fft::unit_root((k + n / 2) % n, n);
      CHECK(a.real == mirrored.real && a.imaginary == -mirrored.imaginary);
      CHECK(a.real == -opposite.real && a.imaginary == -opposite.imaginary);
    }
    CHECK_EQ(softgpu::fft::unit_root(0, n).real, 1.0);
    CHECK_EQ(softgpu::fft::unit_root(n / 4, n).imaginary, -1.0);
    CHECK_EQ(softgpu::fft::unit_root(n / 4, n).real, 0.0);
  }
}

TEST(complex_signals_in_grids_batches_and_strides) {
  for (const Shape& shape : shapes()) {
    check_complex(shape, false, 0);
    check_complex(shape, true, 2);
  }
}

TEST(real_signals_in_grids_batches_and_strides) {
  for (const Shape& shape : shapes()) {
    check_real(shape, 0);
    check_real(shape, 1);
  }
}

// The imaginary parts that a real signal cannot have do not count.
TEST(to_real_numbers_ignores_what_mirrors_itself) {
  Shape shape{1, {4}, 1, {Number::kDouble, true, {1}, 3}, {Number::kDouble, false, {1}, 4}};
  const Signal clean{{4, 0}, {1, -2}, {2, 0}}, odd{{4, 9}, {1, -2}, {2, 7}};
  std::vector<double> a(4), b(4);
  Plan(shape).run(clean.data(), a.data(), true);
  Plan(shape).run(odd.data(), b.data(), true);
  CHECK(a == b);
  CHECK(a == (std::vector<double>{8, 6, 4, -2}));
}

// All finite halves come back, and what lies between two of them goes to the nearer.
TEST(short_numbers_are_rounded_once) {
  using softgpu::fft::load;
  using softgpu::fft::store;
  for (const Number number : {Number::kHalf, Number::kBfloat}) {
    double last = -1;
    for (uint16_t bits = 0; bits < 0x7f80; ++bits) {
      double value = 0;
      load(number, &bits, 1, &value);
      if (std::isinf(value) || std::isnan(value)) break;
      uint16_t back = 0;
      const double around[] = {value, (value + last) / 2,
                               std::nextafter((value + last) / 2, value)};
      store(number, &around[0], 1, &back);
      CHECK_EQ(back, bits);
      if (last >= 0) {
        store(number, &around[1], 1, &back);  // the even one of both
        CHECK_EQ(back, bits % 2 ? bits - 1 : bits);
        store(number, &around[2], 1, &back);
        CHECK_EQ(back, bits);
      }
      last = value;
    }
  }
  const double beyond[] = {65519.99, 65520, -1e300, NAN};
  uint16_t bits[4] = {};
  store(Number::kHalf, beyond, 4, bits);
  CHECK_EQ(bits[0], 0x7bff);
  CHECK_EQ(bits[1], 0x7c00);
  CHECK_EQ(bits[2], 0xfc00);
  CHECK(bits[3] > 0x7c00 && bits[3] < 0x8000);
}

CHECK_MAIN
