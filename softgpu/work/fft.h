// Discrete Fourier transforms of up to three dimensions in the layouts of cuFFT, on the host.
//
// Everything is computed in double and rounded once, when it is stored.
#ifndef SOFTGPU_WORK_FFT_H_
#define SOFTGPU_WORK_FFT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "work/fft_line.h"

namespace softgpu::fft {

inline constexpr int kMaxRank = 3;
using Sizes = std::array<int64_t, kMaxRank>;

enum class Number : uint8_t { kHalf, kBfloat, kSingle, kDouble };
size_t bytes_of(Number number);
// `count` numbers, without gaps.
void load(Number number, const void* from, size_t count, double* to);
void store(Number number, const double* from, size_t count, void* to);

// Where the elements of a signal lie, counted in elements: a complex one has two numbers.
struct Layout {
  Number number = Number::kSingle;
  bool complex = true;
  Sizes strides{};    // between neighbours of each dimension
  int64_t apart = 0;  // from one signal of a batch to the next

  size_t element_bytes() const { return bytes_of(number) * (complex ? 2 : 1); }
};

// From real numbers to complex ones and back, the complex side has the first half of the last
// dimension, and its middle.
struct Shape {
  int rank = 1;
  Sizes sizes{};
  int64_t batch = 1;
  Layout in, out;

  bool real() const { return !in.complex || !out.complex; }
  // Elements of a dimension on one side.
  int64_t extent(const Layout& side, int dimension) const;
  // From the first element to behind the last.
  uint64_t bytes(const Layout& side) const;
};

class Plan {
 public:
  // Precondition: sizes of at least 1, strides not negative, one side complex.
  explicit Plan(const Shape& shape);

  // What transforms take their place in `in` and `out`, which may be the same if signals do not
  // overlap. From real numbers it is always forward, to real numbers inverse.
  void run(const void* in, void* out, bool inverse) const;

  const Shape& shape() const { return shape_; }
  // The same transforms of signals that lie otherwise.
  void lay_out(const Layout& in, const Layout& out) { shape_.in = in, shape_.out = out; }

 private:
  struct Work;
  template <class Row>
  void for_rows(const Layout& side, Row row) const;
  void load_signal(const std::byte* from, Work* work) const;
  void store_signal(std::byte* to, Work* work) const;
  void transform(int dimension, bool inverse, Work* work) const;

  const Line& line(int dimension) const;

  Shape shape_;
  Sizes grid_{};  // of the numbers between loading and storing
  std::map<int64_t, std::shared_ptr<const Line>> lines_;  // by size, shared by copies
};

}  // namespace softgpu::fft

#endif  // SOFTGPU_WORK_FFT_H_
