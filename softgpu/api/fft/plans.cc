// cuFFT's plans: their table, what they are made of, and their work.
#include <cstdio>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>

#include "api/fft/fft.h"
#include "api/library_work.h"
#include "api/support.h"
#include "memory/pointers.h"

namespace softgpu::api {
namespace {

// Of one transform with its batch and of one dimension: products of sizes stay small numbers.
constexpr double kMostElements = 0x1p40;

struct Plans {
  std::mutex mutex;
  std::unordered_map<int, FftPlan> all;
  int last = 0;
};

Plans& plans() {
  static Plans* table = std::make_unique<Plans>().release();
  return *table;
}

struct Format {
  fft::Number number;
  bool complex;
};

std::optional<Format> format_of(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_16F:
    case CUDA_C_16F:
      return Format{fft::Number::kHalf, type == CUDA_C_16F};
    case CUDA_R_16BF:
    case CUDA_C_16BF:
      return Format{fft::Number::kBfloat, type == CUDA_C_16BF};
    case CUDA_R_32F:
    case CUDA_C_32F:
      return Format{fft::Number::kSingle, type == CUDA_C_32F};
    case CUDA_R_64F:
    case CUDA_C_64F:
      return Format{fft::Number::kDouble, type == CUDA_C_64F};
    default:
      return std::nullopt;
  }
}

// Without gaps. In place, rows of real numbers are as long as those of complex ones.
void lay_out_basic(const fft::Shape& shape, fft::Layout* side, bool in_place) {
  int64_t elements = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    side->strides[static_cast<size_t>(i)] = elements;
    int64_t width = shape.extent(*side, i);
    if (in_place && !side->complex && i == shape.rank - 1) width = 2 * (width / 2 + 1);
    elements *= width;
  }
  side->apart = elements;
}

// False: it cannot be.
bool lay_out(const fft::Shape& shape, const FftSide& given, fft::Layout* side) {
  if (given.stride < 1 || given.apart < 0) return false;
  double reach = static_cast<double>(given.apart) * static_cast<double>(shape.batch);
  int64_t stride = given.stride;
  for (int i = shape.rank - 1; i >= 0; --i) {
    const int64_t size = shape.extent(*side, i), embed = given.embed[static_cast<size_t>(i)];
    reach += static_cast<double>(size) * static_cast<double>(stride);
    if (reach > kMostElements || (i && (embed < 1 || embed > INT64_MAX / stride))) return false;
    side->strides[static_cast<size_t>(i)] = stride;
    if (i) stride *= embed;
  }
  side->apart = given.apart;
  return true;
}

FftStatus describe(std::span<const int64_t> sizes, const FftSide& in, const FftSide& out,
                   int64_t batch, fft::Shape* shape) {
  const auto from = format_of(in.type), to = format_of(out.type);
  if (!from || !to || from->number != to->number || !(from->complex || to->complex))
    return kFftInvalidType;
  if (sizes.empty() || sizes.size() > fft::kMaxRank) return kFftInvalidValue;
  shape->rank = static_cast<int>(sizes.size());
  shape->batch = batch;
  double elements = static_cast<double>(batch);
  for (size_t i = 0; i < sizes.size(); ++i) {
    shape->sizes[i] = sizes[i];
    elements *= static_cast<double>(sizes[i]);
    if (sizes[i] < 1 || batch < 1 || elements > kMostElements) return kFftInvalidSize;
  }
  shape->in.number = from->number, shape->in.complex = from->complex;
  shape->out.number = to->number, shape->out.complex = to->complex;
  if (in.embed.empty() || out.embed.empty()) {
    lay_out_basic(*shape, &shape->in, false);
    lay_out_basic(*shape, &shape->out, false);
    return kFftSuccess;
  }
  const bool fits = lay_out(*shape, in, &shape->in) && lay_out(*shape, out, &shape->out);
  return fits ? kFftSuccess : kFftInvalidValue;
}

Fault fft_fault(const char* what, const void* address) {
  char text[96];
  std::snprintf(text, sizeof text, "the %s at [%p] of an FFT call is not mapped", what, address);
  return {FaultKind::kIllegalAddress, text};
}

// The plan as it is for a transform that writes over its input.
std::shared_ptr<const fft::Plan> in_place(const FftPlan& plan) {
  if (!plan.basic || !plan.plan->shape().real()) return plan.plan;
  auto other = std::make_shared<fft::Plan>(*plan.plan);
  fft::Layout in = other->shape().in, out = other->shape().out;
  lay_out_basic(other->shape(), &in, true);
  lay_out_basic(other->shape(), &out, true);
  other->lay_out(in, out);
  return other;
}

}  // namespace

int add_fft_plan() {
  const std::lock_guard lock(plans().mutex);
  plans().all[++plans().last].device = current_device().index();
  return plans().last;
}

bool remove_fft_plan(int number) {
  const std::lock_guard lock(plans().mutex);
  return plans().all.erase(number);
}

bool use_fft_plan(int number, const std::function<void(FftPlan*)>& use) {
  const std::lock_guard lock(plans().mutex);
  const auto it = plans().all.find(number);
  if (it == plans().all.end()) return false;
  use(&it->second);
  return true;
}

FftStatus make_fft_plan(int number, std::span<const int64_t> sizes, const FftSide& in,
                        const FftSide& out, int64_t batch) {
  bool made = false;
  if (!use_fft_plan(number, [&](FftPlan* p) { made = p->plan != nullptr; }) || made)
    return kFftInvalidPlan;
  fft::Shape shape;
  if (const FftStatus bad = describe(sizes, in, out, batch, &shape); bad != kFftSuccess) return bad;
  std::shared_ptr<const fft::Plan> plan;
  try {
    plan = std::make_shared<const fft::Plan>(shape);
  } catch (const std::bad_alloc&) {
    return kFftAllocationFailed;
  }
  const bool there = use_fft_plan(number, [&](FftPlan* p) {
    p->plan = plan, p->in = in.type, p->out = out.type;
    p->basic = in.embed.empty() || out.embed.empty();
  });
  return there ? kFftSuccess : kFftInvalidPlan;
}

FftStatus execute_fft(const FftPlan& given, const void* in, void* out, int direction) {
  if (usable() != cudaSuccess) return kFftSetupFailed;
  if (!given.plan) return kFftInvalidPlan;
  const bool known = direction == kFftForward || direction == kFftInverse;
  if (!in || !out || !(known || given.plan->shape().real())) return kFftInvalidValue;
  auto plan = in == out ? in_place(given) : given.plan;
  const cudaError_t status =
      enqueue_library("cufft", given.device, given.stream, [=, plan = std::move(plan)]() -> Fault {
        const fft::Shape& shape = plan->shape();
        if (!pointers().covers(number(in), shape.bytes(shape.in))) return fft_fault("input", in);
        if (!pointers().covers(number(out), shape.bytes(shape.out)))
          return fft_fault("result", out);
        plan->run(in, out, direction == kFftInverse);
        return {};
      });
  return status == cudaSuccess ? kFftSuccess : kFftExecutionFailed;
}

}  // namespace softgpu::api
