// Making devices fail: the part of softgpu.h about faults, and the control file.
#include <cstdio>

#include "api/support.h"
#include "core/log.h"
#include "device/fault_injection.h"
#include "fault/control_file.h"
#include "fault/fault_request.h"
#include "softgpu.h"
#include "softgpu_again.h"
#include "work/twice.h"

namespace api = softgpu::api;

namespace {

bool there(int index) {
  return api::usable() == cudaSuccess && index >= 0 && index < softgpu::device_count();
}

int answer(const std::string& sentence, char* problem, unsigned long long bytes) {
  if (problem && bytes) std::snprintf(problem, bytes, "%s", sentence.c_str());
  return sentence.empty() ? 0 : 1;
}

}  // namespace

SOFTGPU_API void softgpu_set_log(softgpu_log_t log) {
  softgpu::log_function = log;
  softgpu::log_from_executor(log);
}

SOFTGPU_API const char* softgpu_instruction_set() {
  return softgpu::instruction_set();
}

SOFTGPU_API int softgpu_fail(int index, int cuda_error) {
  const softgpu::FaultKind kind = softgpu::fault_kind(cuda_error);
  if (kind == softgpu::FaultKind::kNone || !there(index)) return 1;
  softgpu::device(index).scheduler().fail_now(
      {kind, "error [" + std::to_string(cuda_error) + "] was asked for by softgpu_fail"});
  return 0;
}

SOFTGPU_API int softgpu_check_faults(const char* faults, char* problem, unsigned long long bytes) {
  std::vector<softgpu::FaultRequest> requests;
  return answer(softgpu::parse_faults(faults ? faults : "", &requests), problem, bytes);
}

SOFTGPU_API int softgpu_inject(const char* faults, char* problem, unsigned long long bytes) {
  if (api::usable() != cudaSuccess) return answer("this process has no device", problem, bytes);
  return answer(softgpu::inject_faults(faults ? faults : ""), problem, bytes);
}

SOFTGPU_API void softgpu_note_faults(unsigned char* notes) {
  softgpu::note_faults(notes);
}

SOFTGPU_API void softgpu_missed_faults(char* text, unsigned long long bytes) {
  answer(softgpu::missed_faults(), text, bytes);
}

SOFTGPU_API int softgpu_device_state(int index, softgpu_state* state) {
  if (!state || !there(index)) return 1;
  const softgpu::FaultKind kind = softgpu::device(index).scheduler().fault();
  state->error = softgpu::fault_code(kind);
  state->needs = static_cast<int>(softgpu::device_needs(kind));
  state->launches = softgpu::launches(index);
  state->hanging = state->error ? 0 : softgpu::hanging(index);
  return 0;
}

SOFTGPU_API void softgpu_execute_again(int again, unsigned places) {
  softgpu::set_placement({again != 0, again ? places : 0});
}

SOFTGPU_API void softgpu_execute_twice(const softgpu_twice* twice) {
  softgpu::ask_twice(twice);
}
