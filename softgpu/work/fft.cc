#include "work/fft.h"

#include <algorithm>
#include <vector>

#include "fault/written.h"

namespace softgpu::fft {

// Buffers of one run.
struct Plan::Work {
  std::vector<Complex> grid, line, scratch;
  std::vector<double> reals;
};

int64_t Shape::extent(const Layout& side, int dimension) const {
  const int64_t size = sizes[static_cast<size_t>(dimension)];
  return real() && side.complex && dimension == rank - 1 ? size / 2 + 1 : size;
}

uint64_t Shape::bytes(const Layout& side) const {
  int64_t last = (batch - 1) * side.apart;
  for (int i = 0; i < rank; ++i)
    last += (extent(side, i) - 1) * side.strides[static_cast<size_t>(i)];
  return static_cast<uint64_t>(last + 1) * side.element_bytes();
}

Plan::Plan(const Shape& shape) : shape_(shape) {
  const Layout& complex_side = shape_.in.complex ? shape_.in : shape_.out;
  grid_.fill(1);
  for (int i = 0; i < shape_.rank; ++i) {
    const int64_t size = shape_.sizes[static_cast<size_t>(i)];
    grid_[static_cast<size_t>(i)] = shape_.extent(complex_side, i);
    auto& line = lines_[size];
    if (!line) line = std::make_shared<const Line>(static_cast<size_t>(size));
  }
}

const Line& Plan::line(int dimension) const {
  return *lines_.at(shape_.sizes[static_cast<size_t>(dimension)]);
}

// Calls row(index, offset) for each line along the last dimension; `offset` in bytes.
template <class Row>
void Plan::for_rows(const Layout& side, Row row) const {
  const auto outer = [&](int i) { return i < shape_.rank - 1 ? grid_[static_cast<size_t>(i)] : 1; };
  size_t index = 0;
  for (int64_t i = 0; i < outer(0); ++i) {
    for (int64_t j = 0; j < outer(1); ++j) {
      int64_t at = 0;
      if (shape_.rank > 1) at += i * side.strides[0];
      if (shape_.rank > 2) at += j * side.strides[1];
      row(index++, static_cast<size_t>(at) * side.element_bytes());
    }
  }
}

namespace {

// A strided row of elements to or from numbers without gaps.
struct RowAccess {
  const Layout& side;
  size_t count, step;  // step in bytes
  RowAccess(const Layout& layout, int64_t elements, int64_t stride)
      : side(layout),
        count(static_cast<size_t>(elements)),
        step(static_cast<size_t>(stride) * layout.element_bytes()) {}

  bool dense() const { return step == side.element_bytes(); }
  size_t numbers() const { return side.complex ? 2 : 1; }

  void load(const std::byte* from, double* to) const {
    if (dense()) return fft::load(side.number, from, count * numbers(), to);
    for (size_t i = 0; i < count; ++i)
      fft::load(side.number, from + i * step, numbers(), to + i * numbers());
  }

  void store(const double* from, std::byte* to) const {
    const auto address = reinterpret_cast<uint64_t>(to);
    if (dense()) {
      about_to_write(address, count * step);
      return fft::store(side.number, from, count * numbers(), to);
    }
    about_to_write(address, side.element_bytes(), count, step);
    for (size_t i = 0; i < count; ++i)
      fft::store(side.number, from + i * numbers(), numbers(), to + i * step);
  }
};

double* numbers_of(Complex* values) {
  static_assert(sizeof(Complex) == 2 * sizeof(double));
  return reinterpret_cast<double*>(values);
}

}  // namespace

void Plan::load_signal(const std::byte* from, Work* work) const {
  const auto last = static_cast<size_t>(shape_.rank - 1);
  const auto width = static_cast<size_t>(grid_[last]);
  const RowAccess access(shape_.in, shape_.extent(shape_.in, shape_.rank - 1),
                         shape_.in.strides[last]);
  for_rows(shape_.in, [&](size_t index, size_t offset) {
    Complex* const row = work->grid.data() + index * width;
    if (shape_.in.complex) return access.load(from + offset, numbers_of(row));
    access.load(from + offset, work->reals.data());
    for (size_t i = 0; i < access.count; ++i) work->line[i] = {work->reals[i], 0};
    line(shape_.rank - 1).run(work->line.data(), work->scratch.data(), false);
    std::copy_n(work->line.data(), width, row);
    // Sums of real numbers, whatever the roundings of the others have left there.
    row[0].imaginary = 0;
    if (access.count % 2 == 0) row[width - 1].imaginary = 0;
  });
}

void Plan::store_signal(std::byte* to, Work* work) const {
  const auto last = static_cast<size_t>(shape_.rank - 1);
  const auto width = static_cast<size_t>(grid_[last]);
  const RowAccess access(shape_.out, shape_.extent(shape_.out, shape_.rank - 1),
                         shape_.out.strides[last]);
  for_rows(shape_.out, [&](size_t index, size_t offset) {
    Complex* const row = work->grid.data() + index * width;
    if (shape_.out.complex) return access.store(numbers_of(row), to + offset);
    // The other half mirrors this one, and what mirrors itself is real.
    const size_t size = access.count;
    row[0].imaginary = 0;
    if (size % 2 == 0) row[width - 1].imaginary = 0;
    std::copy_n(row, width, work->line.data());
    for (size_t i = width; i < size; ++i)
      work->line[i] = {row[size - i].real, -row[size - i].imaginary};
    line(shape_.rank - 1).run(work->line.data(), work->scratch.data(), true);
    for (size_t i = 0; i < size; ++i) work->reals[i] = work->line[i].real;
    access.store(work->reals.data(), to + offset);
  });
}

// All lines along one dimension of the grid.
void Plan::transform(int dimension, bool inverse, Work* work) const {
  const Line& along = line(dimension);
  const size_t count = along.size();
  size_t stride = 1;
  for (int i = dimension + 1; i < shape_.rank; ++i)
    stride *= static_cast<size_t>(grid_[static_cast<size_t>(i)]);
  for (size_t first = 0; first < work->grid.size(); first += stride * count) {
    for (size_t inner = 0; inner < stride; ++inner) {
      Complex* const at = work->grid.data() + first + inner;
      if (stride == 1) {
        along.run(at, work->scratch.data(), inverse);
        continue;
      }
      for (size_t i = 0; i < count; ++i) work->line[i] = at[i * stride];
      along.run(work->line.data(), work->scratch.data(), inverse);
      for (size_t i = 0; i < count; ++i) at[i * stride] = work->line[i];
    }
  }
}

void Plan::run(const void* in, void* out, bool inverse) const {
  if (shape_.real()) inverse = shape_.in.complex;
  Work work;
  work.grid.resize(static_cast<size_t>(grid_[0] * grid_[1] * grid_[2]));
  size_t scratch = 0;
  for (const auto& [size, line] : lines_) scratch = std::max(scratch, line->scratch_size());
  work.line.resize(static_cast<size_t>(lines_.rbegin()->first));
  work.scratch.resize(scratch);
  if (shape_.real()) work.reals.resize(work.line.size());
  const auto apart = [](const Layout& side, int64_t signal) {
    return static_cast<size_t>(signal * side.apart) * side.element_bytes();
  };
  for (int64_t i = 0; i < shape_.batch; ++i) {
    load_signal(static_cast<const std::byte*>(in) + apart(shape_.in, i), &work);
    const int complex_dimensions = shape_.rank - (shape_.real() ? 1 : 0);
    for (int dimension = complex_dimensions - 1; dimension >= 0; --dimension)
      transform(dimension, inverse, &work);
    store_signal(static_cast<std::byte*>(out) + apart(shape_.out, i), &work);
  }
}

}  // namespace softgpu::fft
