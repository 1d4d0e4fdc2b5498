// cuFFT, cuRAND, cuSOLVER and cuSPARSE from a program's call to the library's: handles, host
// arrays, scalars, results. Client and server in one process; the libraries behind are functions of
// this file.
#include <cstdlib>
#include <cstring>

#include "api/mock_table.h"
#include "api/object_types.h"
#include "api/printer.h"
#include "check.h"
#include "wire/one_process.h"

using namespace pyft;  // NOLINT: a test

// As programs declare them, with the types the calls are made of.
extern "C" {
int cufftCreate(int* plan);
int cufftDestroy(int plan);
int cufftSetStream(int plan, void* stream);
int cufftXtMakePlanMany(int, int, long long*, long long*, long long, long long, int, long long*,
                        long long, long long, int, long long, size_t*, int);
int cufftXtExec(int plan, void* input, void* output, int direction);
int cusolverDnCreate(void** handle);
int cusolverDnDestroy(void* handle);
int cusolverDnSgetrf_bufferSize(void*, int m, int n, float* a, int lda, int* work);
int cusolverDnSetStream(void* handle, void* stream);
int cusolverDnXgeqrf(void*, void*, int64_t, int64_t, int, void*, int64_t, int, void*, int, void*,
                     size_t, void*, size_t, int*);
int cusolverDnDgesvdaStridedBatched(void*, int, int, int, int, const double*, int, long long,
                                    double*, long long, double*, int, long long, double*, int,
                                    long long, double*, int, int*, double*, int);
int cusparseCreate(void** handle);
int cusparseDestroy(void* handle);
int cusparseSetPointerMode(void* handle, int mode);
int cusparseCreateMatDescr(void** descr);
int cusparseSetMatType(void* descr, int type);
int cusparseCreateDnVec(void** descr, int64_t size, void* values, int type);
int cusparseDestroyDnVec(void* descr);
int cusparseCreateCsr(void** descr, int64_t, int64_t, int64_t, void*, void*, void*, int, int, int,
                      int);
int cusparseSpMV(void*, int, const void*, void*, void*, const void*, void*, int, int, void*);
int cusparseXcsrgeam2Nnz(void*, int, int, void*, int, const int*, const int*, void*, int,
                         const int*, const int*, void*, int*, int*, void*);
int curandCreateGenerator(void** generator, int type);
int cudnnCreate(void** handle);
int cudnnCreateTensorDescriptor(void** descriptor);
int curandGenerateNormal(void* generator, float* out, size_t n, float mean, float stddev);
}

namespace {

struct Seen {
  long long dims[3] = {};
  bool embedded = true;
  int plan = 0, direction = 0;
  float mean = 0, alpha = 0;
  const void* device_alpha = nullptr;
  size_t host_bytes = 0;
  void* stream = nullptr;
} seen;

// The only one that is made.
void* own_stream() {
  return reinterpret_cast<void*>(uint64_t{0x3000});
}

bool on_device(const void* address) {
  return reinterpret_cast<uint64_t>(address) - ring::kDeviceWindowBase < ring::kDeviceWindowBytes;
}

int give_plan(void* plan) {
  *static_cast<int*>(plan) = 7;
  return 0;
}
int make_plan(int plan, int rank, void* n, void* inembed, int64_t, int64_t, int, void*, int64_t,
              int64_t, int, int64_t, void* work, int) {
  seen.plan = plan;
  std::memcpy(seen.dims, n, static_cast<size_t>(rank) * sizeof(long long));
  seen.embedded = inembed != nullptr;
  *static_cast<size_t*>(work) = 4096;
  return 0;
}
int execute(int plan, void*, void*, int direction) {
  seen.plan = plan;
  seen.direction = direction;
  return 0;
}
int set_stream(void*, void* stream) {
  seen.stream = stream;
  return 0;
}
int give_pointer(void* out) {
  static uintptr_t last = 0x5000;
  *static_cast<uintptr_t*>(out) = last += 16;
  return 0;
}
int needs(void*, int m, int n, void*, int, void* work) {
  if (m < 0) return 3;  // CUSOLVER_STATUS_INVALID_VALUE
  *static_cast<int*>(work) = m * n;
  return 0;
}
int factor(void*, void*, int64_t, int64_t, int, void*, int64_t, int, void*, int, void*, uint64_t,
           void* host, uint64_t host_bytes, void*) {
  std::memset(host, 1, host_bytes);
  seen.host_bytes = host_bytes;
  return 0;
}
int batch(void*, int, int, int, int, void*, int, int64_t, void*, int64_t, void*, int, int64_t,
          void*, int, int64_t, void*, int, void*, void* norms, int count) {
  for (int i = 0; i < count; ++i) static_cast<double*>(norms)[i] = i + 0.5;
  return 0;
}
int give_vector(void* out, int64_t, void*, int) {
  return give_pointer(out);
}
int multiply(void*, int, void* alpha, void*, void*, void*, void*, int, int, void*) {
  seen.device_alpha = alpha;
  if (!on_device(alpha)) std::memcpy(&seen.alpha, alpha, sizeof seen.alpha);
  return 0;
}
int give_matrix(void* out, int64_t, int64_t, int64_t, void*, void*, void*, int, int, int, int) {
  return give_pointer(out);
}
int count_nonzero(void*, int, int, void*, int, void*, void*, void*, int, void*, void*, void*, void*,
                  void* count, void*) {
  if (!on_device(count)) *static_cast<int*>(count) = 42;
  return 0;
}
int give_generator(void* out, int) {
  return give_pointer(out);
}
int normal(void*, void*, uint64_t, float mean, float) {
  seen.mean = mean;
  return 0;
}

std::string only_some(const char* name) {
  return std::strcmp(name, "cudnn") == 0 ? "there is no [cudnn] here" : "";
}

backend::Table& table() {
  static backend::Table mocked = [] {
    backend::Table t = backend::mock_table();
    t.open_library = only_some;
    t.cufftCreate = give_plan;
    t.cufftXtMakePlanMany = make_plan;
    t.cufftXtExec = execute;
    t.cusolverDnCreate = t.cusparseCreate = t.cusparseCreateMatDescr = give_pointer;
    t.cusolverDnSetStream = set_stream;
    t.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
      *stream = static_cast<CUstream>(own_stream());
      return CUDA_SUCCESS;
    };
    t.cusolverDnSgetrf_bufferSize = needs;
    t.cusolverDnXgeqrf = factor;
    t.cusolverDnDgesvdaStridedBatched = batch;
    t.cusparseCreateDnVec = give_vector;
    t.cusparseCreateCsr = give_matrix;
    t.cusparseSpMV = multiply;
    t.cusparseXcsrgeam2Nnz = count_nonzero;
    t.curandCreateGenerator = give_generator;
    t.curandGenerateNormal = normal;
    return t;
  }();
  return mocked;
}

OneProcess& wire() {
  static OneProcess* const made = new OneProcess(&table());
  return *made;
}

void* device_address(uint64_t offset) {
  return reinterpret_cast<void*>(ring::kDeviceWindowBase + offset);
}

}  // namespace

TEST(a_plan_is_a_number_and_its_arrays_travel) {
  OneProcess& w = wire();
  int plan = 0;
  CHECK_EQ(cufftCreate(&plan), 0);
  CHECK(plan > 0);
  long long dims[] = {4, 5, 6};
  size_t work = 0;
  CHECK_EQ(cufftXtMakePlanMany(plan, 3, dims, nullptr, 1, 1, 0, nullptr, 1, 1, 0, 2, &work, 0), 0);
  CHECK_EQ(work, 4096u);
  CHECK_EQ(seen.plan, 7);
  CHECK_EQ(seen.dims[2], 6);
  CHECK(!seen.embedded);
  CHECK_EQ(cufftXtMakePlanMany(plan, -1, dims, nullptr, 1, 1, 0, nullptr, 1, 1, 0, 2, &work, 0), 4);
  CHECK_EQ(cufftXtExec(plan, device_address(0), device_address(64), -1), 0);
  CHECK_EQ(cufftDestroy(plan), 0);
  CHECK_EQ(w.calls(), "cufftDestroy");  // the others are functions of this file
  CHECK_EQ(seen.direction, -1);
  CHECK_EQ(cufftXtExec(plan, nullptr, nullptr, 1), 1);  // CUFFT_INVALID_PLAN
  CHECK_EQ(cufftDestroy(0), 1);
}

TEST(results_scratch_and_host_arrays_of_the_solver) {
  OneProcess& w = wire();
  void* solver = nullptr;
  CHECK_EQ(cusolverDnCreate(&solver), 0);
  int work = 0;
  CHECK_EQ(cusolverDnSgetrf_bufferSize(solver, 6, 7, nullptr, 6, &work), 0);
  CHECK_EQ(work, 42);
  CHECK_EQ(cusolverDnSgetrf_bufferSize(solver, -1, 7, nullptr, 6, &work), 3);
  CHECK_EQ(cusolverDnSgetrf_bufferSize(nullptr, 6, 7, nullptr, 6, &work), 1);
  CHECK_EQ(cusolverDnXgeqrf(solver, nullptr, 1, 1, 0, nullptr, 1, 0, nullptr, 0, nullptr, 0,
                            nullptr, 1000, nullptr),
           0);
  CHECK_EQ(seen.host_bytes, 1000u);
  double norms[3] = {};
  const auto svd = [&](double* out, int count) {
    return cusolverDnDgesvdaStridedBatched(solver, 0, 1, 1, 1, nullptr, 1, 1, nullptr, 1, nullptr,
                                           1, 1, nullptr, 1, 1, nullptr, 0, nullptr, out, count);
  };
  CHECK_EQ(svd(norms, 3), 0);
  CHECK_EQ(norms[2], 2.5);
  CHECK_EQ(svd(norms, 1 << 20), 9);  // an answer has no room for them: not supported, and says so
  CHECK_EQ(cusolverDnSetStream(solver, reinterpret_cast<void*>(uint64_t{1})), 0);
  CHECK_EQ(cusolverDnSetStream(solver, reinterpret_cast<void*>(uint64_t{77})), 3);
  w.calls();
  CHECK(seen.stream == reinterpret_cast<void*>(uint64_t{1}));
  // What the thread does beside the library in its own stream is in the same one of the server.
  CHECK_EQ(cusolverDnSetStream(solver, reinterpret_cast<void*>(uint64_t{2})), 0);
  w.calls();
  CHECK(seen.stream == own_stream());
  CHECK_EQ(cusolverDnDestroy(solver), 0);
  CHECK_EQ(w.calls(), "cusolverDnDestroy");
}

TEST(scalars_and_results_follow_the_pointer_mode) {
  OneProcess& w = wire();
  void *sparse = nullptr, *x = nullptr, *y = nullptr, *matrix = nullptr, *info = nullptr;
  CHECK_EQ(cusparseCreate(&sparse), 0);
  CHECK_EQ(cusparseCreateDnVec(&x, 4, device_address(0), 0), 0);
  CHECK_EQ(cusparseCreateDnVec(&y, 4, device_address(64), 0), 0);
  CHECK_EQ(cusparseCreateMatDescr(&info), 0);
  CHECK_EQ(cusparseCreateCsr(&matrix, 4, 4, 4, nullptr, nullptr, nullptr, 0, 0, 0, 0), 0);
  const float alpha = 2.5f, beta = 0;
  const auto spmv = [&](const void* a) {
    return cusparseSpMV(sparse, 0, a, matrix, x, &beta, y, CUDA_R_32F, 0, device_address(128));
  };
  CHECK_EQ(spmv(&alpha), 0);
  int count = 0;
  const auto nonzero = [&] {
    return cusparseXcsrgeam2Nnz(sparse, 1, 1, info, 0, nullptr, nullptr, info, 0, nullptr, nullptr,
                                info, nullptr, &count, nullptr);
  };
  CHECK_EQ(nonzero(), 0);
  CHECK_EQ(seen.alpha, 2.5f);
  CHECK_EQ(count, 42);
  CHECK_EQ(cusparseSetPointerMode(sparse, 1), 0);
  CHECK_EQ(spmv(device_address(256)), 0);
  w.calls();
  CHECK(seen.device_alpha == device_address(256));
  // A descriptor of another kind, and one that has ended.
  CHECK_EQ(cusparseSpMV(sparse, 0, &alpha, x, x, &beta, y, 0, 0, nullptr), 3);
  CHECK_EQ(cusparseDestroyDnVec(x), 0);
  CHECK_EQ(cusparseDestroy(sparse), 0);
  CHECK_EQ(w.calls(), "cusparseDestroyDnVec cusparseDestroy");
}

TEST(floating_point_arguments_keep_their_bits) {
  void* generator = nullptr;
  CHECK_EQ(curandCreateGenerator(&generator, 100), 0);
  CHECK_EQ(curandGenerateNormal(generator, nullptr, 4, 0.1f, 1), 0);
  wire().calls();
  CHECK_EQ(seen.mean, 0.1f);
}

TEST(a_replay_does_not_know_how_far_a_generator_is) {
  OneProcess& w = wire();
  std::atomic<uint64_t>& from = w.device->channel().log().unreplayable_from;
  from = 0;
  void* generator = nullptr;
  CHECK_EQ(curandCreateGenerator(&generator, 100), 0);
  CHECK_EQ(from.load(), 0u);
  CHECK_EQ(curandGenerateNormal(generator, nullptr, 4, 0, 1), 0);
  CHECK(from.load() != 0);
  w.calls();
}

TEST(an_absent_library_is_named_and_nothing_breaks) {
  void* handle = nullptr;
  CHECK_EQ(cudnnCreate(&handle), 3000);
  CHECK(!handle);
  void* descriptor = nullptr;
  CHECK_EQ(cudnnCreateTensorDescriptor(&descriptor), 3000);  // would not wait for an answer
  CHECK_EQ(wire().calls(), "");
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(an_older_library_may_lack_a_function) {
  OneProcess& w = wire();
  void* solver = nullptr;
  CHECK_EQ(cusolverDnCreate(&solver), 0);
  const auto had = table().cusolverDnSgetrf_bufferSize;
  table().cusolverDnSgetrf_bufferSize = nullptr;
  int work = 0;
  CHECK_EQ(cusolverDnSgetrf_bufferSize(solver, 6, 7, nullptr, 6, &work), 9);
  table().cusolverDnSgetrf_bufferSize = had;
  w.calls();
}

// Nothing waits for it, so that it is told late; the device is as good as before.
TEST(a_setting_that_is_refused_is_told_once) {
  OneProcess& w = wire();
  void* descriptor = nullptr;
  CHECK_EQ(cusparseCreateMatDescr(&descriptor), 0);
  const auto had = table().cusparseSetMatType;
  table().cusparseSetMatType = [](auto...) { return 3; };  // CUSPARSE_STATUS_INVALID_VALUE
  CHECK_EQ(cusparseSetMatType(descriptor, 9), 0);
  w.calls();
  CHECK_EQ(cudaDeviceSynchronize(), cudaErrorUnknown);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  table().cusparseSetMatType = had;
  CHECK_EQ(cusparseSetMatType(descriptor, 0), 0);
  w.calls();
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(the_server_believes_no_number) {
  OneProcess& w = wire();
  cmd::cufftXtMakePlanMany make{};
  make.plan = ObjectId::make(static_cast<uint8_t>(ObjectType::cufft_plan), 999).value;
  CHECK(w.refused(Call::cufftXtMakePlanMany, make).find("names no object") != std::string::npos);
  make.plan = ObjectId::make(static_cast<uint8_t>(ObjectType::curand), 1).value;
  CHECK(w.refused(Call::cufftXtMakePlanMany, make).find("names no object") != std::string::npos);
  int plan = 0;
  CHECK_EQ(cufftCreate(&plan), 0);
  cmd::pyftOpenLibrary open{99};
  CHECK(w.refused(Call::pyftOpenLibrary, open).find("does not exist") != std::string::npos);
  cmd::cufftCreate twice{};
  twice.handle = make.plan;  // a number of another type
  CHECK(w.refused(Call::cufftCreate, twice).find("names no object") != std::string::npos);
  twice.handle = ObjectId::make(static_cast<uint8_t>(ObjectType::cufft_plan), 1 << 20).value;
  CHECK_EQ(w.refused(Call::cufftCreate, twice), "");
  CHECK(w.refused(Call::cufftCreate, twice).find("names no object") != std::string::npos);
  make.plan = twice.handle;
  make.rank = 1000;
  make.n = 8;
  CHECK(w.refused(Call::cufftXtMakePlanMany, make).find("not as long") != std::string::npos);
  make.n = 8000;  // as it says, but nothing follows
  CHECK(w.refused(Call::cufftXtMakePlanMany, make).find("not as long") != std::string::npos);
}

TEST(commands_print_with_names_of_their_objects) {
  cmd::curandGenerateNormal command{};
  command.generator = ObjectId::make(static_cast<uint8_t>(ObjectType::curand), 3).value;
  command.mean = 0x3fe0000000000000;  // 0.5
  ring::EntryHeader header{};
  header.call = static_cast<uint16_t>(Call::curandGenerateNormal);
  const std::string text = print_entry(header, std::as_bytes(std::span(&command, 1)));
  CHECK(text.find("generator=curand#3") != std::string::npos);
  CHECK(text.find("mean=0.5") != std::string::npos);
}

TEST(work_of_a_library_is_waited_for) {
  OneProcess& w = wire();
  void* generator = nullptr;
  CHECK_EQ(curandCreateGenerator(&generator, 100), 0);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const uint64_t before = w.published();
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK_EQ(w.published(), before);  // nothing new to wait for
  CHECK_EQ(curandGenerateNormal(generator, nullptr, 4, 0, 1), 0);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK_EQ(w.published(), before + 1);
}

CHECK_MAIN
