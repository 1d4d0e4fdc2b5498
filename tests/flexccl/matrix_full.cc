// The whole matrix, in random order: `matrix_full [CASES [SEED]]`, 0 cases for all of them. A case
// is one (transport, N, size, data type, operator) with all collectives, in and out of place.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "matrix.h"

namespace {

struct Point {
  flexcclTransport_t transport;
  int n;
  std::size_t count;
  ncclDataType_t dtype;
  int op;  // -1: those collectives that only move data
};

// Sizes in elements: none, one, odd ones around the blocks and slices of the algorithms, several
// slices; and 64 MB for a few types, where all types and operators would take days.
std::vector<Point> whole_matrix() {
  std::vector<Point> all;
  for (const auto transport : {flexcclLoopback, flexcclShm, flexcclTcp})
    for (const int n : {1, 2, 3, 4, 5, 8, 16})
      for (int op = -1; op <= matrix::kPreMul; ++op) {
        for (const ncclDataType_t dtype : matrix::kTypes)
          for (const std::size_t count : {0, 1, 3, 63, 65, 1021, 32769, 131071, 300007})
            all.push_back({transport, n, count, dtype, op});
        if (op == -1 ? n > 4 : n > 8) continue;  // more than the memory of a small machine
        if (op == -1 || op == ncclSum || op == ncclAvg)
          for (const ncclDataType_t dtype : {ncclFloat32, ncclBfloat16, ncclInt64})
            all.push_back({transport, n, (64 << 20) / flexccl::element_size(dtype), dtype, op});
      }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t limit = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 0;
  std::mt19937_64 random(argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 1);
  std::vector<Point> points = whole_matrix();
  const std::size_t all = points.size();
  std::shuffle(points.begin(), points.end(), random);
  if (limit && limit < points.size()) points.resize(limit);
  for (std::size_t i = 0; i < points.size() && !check::failures(); ++i) {
    const Point& point = points[i];
    matrix::Matrix matrix(point.n, point.transport, static_cast<unsigned>(random()));
    if (point.op < 0)
      matrix.moves(point.dtype, point.count);
    else
      matrix.reductions(point.count, {point.op}, {point.dtype});
    if (check::failures())
      std::fprintf(stderr, "point [%zu]: transport [%d]\n", i, int(point.transport));
    if ((i + 1) % 500 == 0) std::printf("%zu of %zu\n", i + 1, points.size()), std::fflush(stdout);
  }
  std::printf("[%zu] of the [%zu] points of the matrix, [%d] failures\n", points.size(), all,
              check::failures());
  return check::failures() ? 1 : 0;
}
