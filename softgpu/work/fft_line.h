// The discrete Fourier transform of one line of complex numbers, on the host, in double.
//
// The same bits on every x86-64 processor: no operation here has a choice of rounding.
#ifndef SOFTGPU_WORK_FFT_LINE_H_
#define SOFTGPU_WORK_FFT_LINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace softgpu::fft {

struct Complex {
  double real = 0, imaginary = 0;
};

// exp(-2 pi i k / n). Precondition: k < n.
Complex unit_root(uint64_t k, uint64_t n);

// What is known in advance about lines of one length. Calls of run() may overlap.
class Line {
 public:
  explicit Line(size_t size);  // at least 1

  size_t size() const { return size_; }
  // How many numbers `scratch` has room for.
  size_t scratch_size() const;
  // data[k] becomes the sum over j of data[j] exp(-2 pi i j k / size), `inverse` turns the sign of
  // the exponent round. Nothing is divided by the size.
  void run(Complex* data, Complex* scratch, bool inverse) const;

 private:
  void forward(Complex* data, Complex* scratch) const;
  void by_factors(Complex* data, Complex* scratch) const;
  void by_convolution(Complex* data, Complex* scratch) const;
  void prepare_convolution();

  size_t size_;
  std::vector<size_t> factors_;  // empty: by convolution, or there is nothing to do
  std::vector<Complex> roots_;   // exp(-2 pi i k / size)
  // Bluestein: a transform of any length is a convolution, and that is three transforms of a
  // length with small factors.
  std::unique_ptr<Line> longer_;
  std::vector<Complex> chirp_;   // exp(-pi i k^2 / size)
  std::vector<Complex> filter_;  // the transform of its conjugate, divided by the longer length
};

}  // namespace softgpu::fft

#endif  // SOFTGPU_WORK_FFT_LINE_H_
