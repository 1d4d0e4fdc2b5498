// run_kernel: one launch from beginning to end.
#include <algorithm>
#include <cfenv>
#include <cstring>
#include <optional>

#include "exec/dispatch.h"
#include "exec/kernel_name.h"
#include "exec/lower.h"
#include "exec/noise.h"
#include "exec/upset.h"
#include "exec/warp.h"

namespace softgpu {

using namespace exec;  // NOLINT: this file is the seam between the two namespaces

namespace {

// Driver-provided slots of constant bank 0 (fact sheet section 3).
enum Bank0 : uint32_t {
  kBlockDim = 0x00,
  kGridDim = 0x0c,
  kSharedBase = 0x18,
  kLocalBase = 0x20,
  kStackPointer = 0x28,
  kDynamicShared = 0x2c,
  kGridWorkspace = 0x90,  // low word; the high word is before it
  kGridWorkspaceHi = 0x8c,
  kMultiprocessors = 0x10c,
};
constexpr uint32_t kMinLocalBytes = 1024;  // recursion has no static bound
constexpr size_t kWorkspaceBytes = 256;    // barrier words of a cooperative grid

template <class T>
void put(std::vector<uint8_t>* bank, uint32_t offset, T value) {
  std::memcpy(bank->data() + offset, &value, sizeof value);
}

void fill_bank0(LaunchState* state, const uint8_t* workspace) {
  const Launch& launch = *state->launch;
  const Kernel& kernel = *launch.kernel;
  std::vector<uint8_t>& bank = state->bank0;
  const size_t end = kernel.param_base + std::max<size_t>(kernel.param_bytes, launch.params.size());
  // Whole words: a last parameter of one or two bytes is read as four.
  bank.assign((std::max<size_t>(end, 0x160) + 15) & ~size_t{15}, 0);
  put(&bank, kBlockDim, launch.block);
  put(&bank, kGridDim, launch.grid);
  put(&bank, kSharedBase, kSharedWindow);
  put(&bank, kLocalBase, kLocalWindow);
  put(&bank, kStackPointer, state->local_bytes);
  put(&bank, kDynamicShared, launch.dynamic_shared_bytes);
  const auto address = reinterpret_cast<uint64_t>(workspace);
  put(&bank, kGridWorkspace, static_cast<uint32_t>(address));
  put(&bank, kGridWorkspaceHi, static_cast<uint32_t>(address >> 32));
  put(&bank, kMultiprocessors, static_cast<uint32_t>(state->sms.count));
  if (!launch.params.empty()) {
    std::memcpy(bank.data() + kernel.param_base, launch.params.data(), launch.params.size());
  }
  state->banks = kernel.banks;
  state->banks[0] = bank;
}

uint32_t pool_value(const LaunchState& state, const PoolEntry& entry) {
  uint32_t value = entry.value;
  if (entry.bank != PoolEntry::kImmediate) {
    const std::span<const uint8_t> bank = state.banks[entry.bank];
    value = 0;
    if (size_t{entry.value} + 4 <= bank.size()) std::memcpy(&value, bank.data() + entry.value, 4);
  }
  if (entry.mods & kModAbs) value &= ~kSign;
  if (entry.mods & kModNeg) value ^= kSign;
  return value;
}

// A pool keeps its rows between launches: only words that changed are broadcast again.
std::unique_ptr<Row[]> take_pool(const LaunchState& state) {
  const Program& program = *state.program;
  std::unique_ptr<Row[]> pool;
  {
    std::lock_guard lock(program.idle_mutex);
    if (!program.idle_pools.empty()) {
      pool = std::move(program.idle_pools.back());
      program.idle_pools.pop_back();
    }
  }
  if (!pool) pool = std::make_unique<Row[]>(program.pool.size() + 1);
  for (size_t i = 0; i < program.pool.size(); ++i) {
    const uint32_t value = pool_value(state, program.pool[i]);
    if (pool[i].lane[0] == value) continue;
    for (uint32_t& lane : pool[i].lane) lane = value;
  }
  return pool;
}

void give_pool(const Program& program, std::unique_ptr<Row[]> pool) {
  std::lock_guard lock(program.idle_mutex);
  program.idle_pools.push_back(std::move(pool));
}

// The host program may run with other rounding or flush-to-zero; kernels must not notice.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

Fault reject(const Launch& launch, const std::string& why) {
  return {FaultKind::kIllegalInstruction,
          "kernel [" + readable_kernel_name(launch.kernel->name) + "]: " + why};
}

}  // namespace

std::string prepare_kernel(const Kernel& kernel) {
  std::call_once(kernel.program_once, [&kernel] {
    auto program = std::make_shared<Program>();
    kernel.program_error = lower_program(kernel, program.get());
    if (kernel.program_error.empty()) kernel.program = std::move(program);
  });
  return kernel.program_error;
}

Fault run_kernel(const Launch& launch, const Sms& sms, AddressSpace& memory, LaunchStats* stats,
                 Journal* journal) {
  const Kernel& kernel = *launch.kernel;
  if (std::string why = prepare_kernel(kernel); !why.empty()) return reject(launch, why);
  const uint64_t threads = launch.block.count();
  if (threads == 0 || threads > 1024 || launch.grid.count() == 0) {
    return reject(launch, "a block of [" + std::to_string(threads) + "] threads in a grid of [" +
                              std::to_string(launch.grid.count()) + "] blocks cannot be launched");
  }
  const DefaultFloatEnvironment environment;
  LaunchState state;
  state.launch = &launch;
  state.program = kernel.program.get();
  state.sms = sms;
  state.memory = &memory;
  state.threads = static_cast<uint32_t>(threads);
  state.warps = (state.threads + kLanes - 1) / kLanes;
  state.shared_bytes = kernel.static_shared_bytes + launch.dynamic_shared_bytes;
  state.local_bytes =
      (std::max({kernel.local_bytes, launch.stack_bytes, kMinLocalBytes}) + 15) & ~15u;
  state.journal = journal;
  state.noise = draw_noise(launch.device, journal && journal->is_second());
  if (journal && state.noise) journal->order_is_drawn();
  std::vector<uint8_t> workspace;
  if (launch.cooperative) {
    workspace.assign(kWorkspaceBytes, 0);
    memory.add(reinterpret_cast<uint64_t>(workspace.data()), kWorkspaceBytes);
  }
  fill_bank0(&state, workspace.data());
  std::unique_ptr<Row[]> pool = take_pool(state);
  state.pool = pool.get();

  std::optional<UpsetRun> upsets;
  if (Upsets* const asked = UpsetsHere::current()) state.upsets = &upsets.emplace(state, asked);
  uint64_t instructions = 0;
  Fault result = run_blocks(state, &instructions);
  if (launch.cooperative) memory.remove(reinterpret_cast<uint64_t>(workspace.data()));
  give_pool(*state.program, std::move(pool));
  if (stats) stats->warp_instructions += instructions;
  if (journal) journal->instructions = instructions;
  return result;
}

Fault run_kernel(const Launch& launch, const Sms& sms, AddressSpace& memory, LaunchStats* stats) {
  return run_kernel(launch, sms, memory, stats, nullptr);
}

}  // namespace softgpu
