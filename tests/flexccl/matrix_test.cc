// Every collective x data type x operator x N x transport x in and out of place x size: a sample.
// All of it: matrix_full.cc.
#include "matrix.h"

namespace {

using matrix::kFewTypes;
using matrix::kPreMul;
using matrix::kTypes;
using matrix::Matrix;

void some_of_the_matrix(flexcclTransport_t transport) {
  for (const int n : {1, 2, 3, 4, 5, 8, 16}) {
    Matrix matrix(n, transport);
    for (const std::size_t count : {0, 1, 1021})
      if (n < 16 || count == 1)
        matrix.reductions(count, {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, kPreMul});
    matrix.reductions(n < 16 ? 65536 : 1021, {ncclSum}, n == 3 ? kTypes : kFewTypes);
    for (const std::size_t count : {0, 1, 1021, 65536})
      if (n < 16 || count == 1021)
        for (const ncclDataType_t dtype : kFewTypes) matrix.moves(dtype, count);
  }
}

}  // namespace

TEST(loopback) {
  some_of_the_matrix(flexcclLoopback);
}
TEST(shm) {
  some_of_the_matrix(flexcclShm);
}
TEST(tcp) {
  some_of_the_matrix(flexcclTcp);
}

TEST(larger_than_all_buffers) {
  for (const auto transport : {flexcclLoopback, flexcclShm, flexcclTcp}) {
    Matrix matrix(3, transport);
    matrix.moves(ncclFloat32, 700001);
    matrix.reductions(700001, {ncclAvg}, {ncclBfloat16, ncclInt64});
  }
}

TEST(sixty_four_megabytes) {
  Matrix matrix(2, flexcclShm);
  matrix.reductions((64 << 20) / 4, {ncclSum}, {ncclFloat32});
}

CHECK_MAIN
