// The whole matrix: `matrix_full [CASES [SEED [TRANSPORT [N]]]]`. 0 cases: all; otherwise so many
// in each world, drawn at random. A world is one (transport, N); a case is one (size, data type,
// operator) in it, a point one collective of a case, in or out of place. Prints what ran and what
// was left out.
//
// Small sizes are crossed with all data types and operators. Of the two large ones (buffers of 4 MB
// and 64 MB per rank) all data types meet the sum, and all operators meet float32 and bfloat16:
// what a large size adds is slices and rounds, which know only bytes and the size of an element.
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "matrix.h"

namespace {

constexpr std::size_t kSmall[] = {0, 1, 3, 63, 65, 1021, 32769, 131071, 300007};  // elements
constexpr std::size_t kLarge[] = {4 << 20, 64 << 20};                             // bytes
constexpr std::size_t kReductionPoints = 6, kMovePoints = 11;

struct Point {
  ncclDataType_t dtype;
  int op;  // -1: those collectives that only move data
  std::size_t size;
  bool large;
  // An all-to-all in place exists only when it moves nothing.
  std::size_t points() const {
    return op < 0 ? kMovePoints + (size == 0 ? 1 : 0) : kReductionPoints;
  }
};

std::vector<Point> cases(bool all) {
  std::vector<Point> found;
  for (int op = -1; op <= matrix::kPreMul; ++op)
    for (const ncclDataType_t dtype : matrix::kTypes) {
      for (const std::size_t count : kSmall) found.push_back({dtype, op, count, false});
      const bool usual = dtype == ncclFloat32 || dtype == ncclBfloat16;
      if (!all && op > ncclSum && !usual) continue;
      for (const std::size_t bytes : kLarge) found.push_back({dtype, op, bytes, true});
    }
  return found;
}

std::size_t points_of(const std::vector<Point>& points) {
  std::size_t sum = 0;
  for (const Point& point : points) sum += point.points();
  return sum;
}

void run(matrix::Matrix& world, const Point& point) {
  if (point.large)
    point.op < 0 ? world.large_moves(point.size, point.dtype)
                 : world.large_reductions(point.size, point.op, point.dtype);
  else
    point.op < 0 ? world.moves(point.dtype, point.size)
                 : world.reductions(point.size, {point.op}, {point.dtype});
}

// Returns how many points ran.
std::size_t run_world(flexcclTransport_t transport, int n, std::size_t limit,
                      std::mt19937_64& random) {
  std::vector<Point> points = cases(false);
  std::shuffle(points.begin(), points.end(), random);
  if (limit && limit < points.size()) points.resize(limit);
  const auto start = std::chrono::steady_clock::now();
  matrix::Matrix world(n, transport, static_cast<unsigned>(random()));
  for (const Point& point : points) {
    run(world, point);
    if (!check::failures()) continue;
    std::fprintf(stderr, "dtype [%d], op [%d], size [%zu]\n", int(point.dtype), point.op,
                 point.size);
    break;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const char* names[] = {"auto", "loopback", "shm", "tcp"};
  std::printf("%-8s N=%-2d [%zu] points, [%d] failures, %.1f s\n", names[transport], n,
              world.done(), check::failures(), took.count());
  std::fflush(stdout);
  return world.done();
}

}  // namespace

int main(int argc, char** argv) {
  // Buffers come and go all the time: half the time went into giving their pages back.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  const auto argument = [&](int i, std::size_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 0) : otherwise;
  };
  std::mt19937_64 random(argument(2, 1));
  std::size_t ran = 0, worlds = 0;
  for (const auto transport : {flexcclLoopback, flexcclShm, flexcclTcp})
    for (const int n : {1, 2, 3, 4, 5, 8, 16}) {
      if (check::failures() || argument(3, transport) != transport ||
          argument(4, static_cast<std::size_t>(n)) != static_cast<std::size_t>(n))
        continue;
      ran += run_world(transport, n, argument(1, 0), random);
      ++worlds;
    }
  const std::size_t everything = points_of(cases(true)) * worlds;
  std::printf("[%zu] points of the matrix in [%zu] worlds, [%d] failures; left out: [%zu]\n", ran,
              worlds, check::failures(), everything - ran);
  return check::failures() ? 1 : 0;
}
