#include "backend/repair.h"

#include <dlfcn.h>
#include <flexccl.h>

#include <cstring>

#include "pyft/log.h"

namespace pyft::backend {

namespace {

void* flexccl = nullptr;

ncclComm_t as_comm(void* comm) {
  return static_cast<ncclComm_t>(comm);
}

flexcclInfo_t as_info(std::span<const std::byte> bytes) {
  flexcclInfo_t info{};
  std::memcpy(&info, bytes.data(), std::min(bytes.size(), sizeof info));
  return info;
}

void as_bytes(const flexcclInfo_t& info, InfoBytes* out) {
  const auto* at = reinterpret_cast<const std::byte*>(&info);
  out->assign(at, at + sizeof info);
}

class Flexccl final : public Repair {
 public:
  // False when a function is missing.
  bool open(void* library) {
    const auto get = [library](auto* function, const char* name) {
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
      return *function != nullptr;
    };
    return get(&get_state_, "flexcclGetState") && get(&ask_around_, "flexcclAskAround") &&
           get(&set_records_, "flexcclSetRecords") && get(&committed_, "flexcclCommitted") &&
           get(&forget_, "flexcclForget") && get(&find_, "flexcclFind") &&
           get(&export_, "ncclCommExportInfo") && get(&replace_, "flexcclReplaceLater") &&
           get(&init_new_, "ncclInitNewNode") && get(&replay_, "flexcclReplay") &&
           get(&adopt_, "flexcclAdopt") && get(&setup_, "ncclCommSetupNewRank") &&
           get(&last_error_, "ncclGetLastError") && get(&set_diverged_, "flexcclSetDiverged") &&
           get(&set_making_, "flexcclSetMaking") && get(&left_, "flexcclRankLeft") &&
           get(&number_of_, "flexcclNumberOf");
  }

  bool state(void* comm, CommunicatorState* out) override {
    flexcclState_t state{};
    state.size = sizeof state;
    if (get_state_(as_comm(comm), &state) != ncclSuccess) return false;
    *out = {state.comm,         state.operation,    state.done,           state.all_done,
            state.kept_bytes,   state.owed,         state.replaying != 0, state.recorded != 0,
            state.record_bytes, state.record_budget};
    return true;
  }
  int ask_around(void* comm) override { return ask_around_(as_comm(comm)); }

  int set_records(void* comm, void* base, size_t bytes) override {
    return set_records_(as_comm(comm), base, bytes);
  }
  int committed(void* comm, uint64_t operation) override {
    return committed_(as_comm(comm), operation);
  }
  int forget(void* base, size_t bytes) override { return forget_(base, bytes); }

  int find(uint64_t key, void** comm) override {
    ncclComm_t found = nullptr;
    const ncclResult_t code = find_(key, &found);
    *comm = found;
    return code;
  }

  bool head(const void* base, RegionHead* out) override {
    flexcclRegion_t region{};
    std::memcpy(&region, base, sizeof region);
    if (region.magic != FLEXCCL_REGION_MAGIC) return false;
    *out = {region.comm, static_cast<int>(region.slot), static_cast<int>(region.slots),
            region.epoch, region.closed != 0};
    return true;
  }

  int export_info(uint64_t key, int rank, InfoBytes* out) override {
    void* comm = nullptr;
    if (const int code = find(key, &comm)) return code;
    flexcclInfo_t info{};
    const ncclResult_t code = export_(as_comm(comm), rank, &info);
    as_bytes(info, out);
    return code;
  }

  int replace(uint64_t key, int rank, std::span<const std::byte> fresh) override {
    const flexcclInfo_t info = as_info(fresh);
    return replace_(key, rank, &info);
  }

  int init_new(void** comm, std::span<const std::byte> exported, int rank,
               InfoBytes* fresh) override {
    const flexcclInfo_t from = as_info(exported);
    flexcclInfo_t info{};
    ncclComm_t made = nullptr;
    const ncclResult_t code = init_new_(&made, &from, rank, &info);
    as_bytes(info, fresh);
    *comm = made;
    return code;
  }

  int replay(void* comm, void* base, size_t bytes, uint64_t operation) override {
    return replay_(as_comm(comm), base, bytes, operation);
  }

  int adopt(void** comm, void* base, size_t bytes, uint64_t operation) override {
    ncclComm_t made = nullptr;
    const ncclResult_t code = adopt_(&made, base, bytes, operation);
    *comm = made;
    return code;
  }

  int setup(void* comm) override { return setup_(as_comm(comm)); }
  const char* last_error() override { return last_error_(nullptr); }
  void set_diverged(void (*report)(uint64_t, uint64_t, const char*)) override {
    set_diverged_(report);
  }
  int left(uint64_t key, int rank) override { return left_(key, rank); }
  bool number_of(std::span<const std::byte> id, uint64_t* key) override {
    ncclUniqueId whole{};
    if (id.size() < sizeof whole) return false;
    std::memcpy(&whole, id.data(), sizeof whole);
    return number_of_(&whole, key) == ncclSuccess;
  }
  void set_making(int (*making)(uint64_t, int, int, int)) override { set_making_(making); }

 private:
  decltype(&flexcclGetState) get_state_ = nullptr;
  decltype(&flexcclAskAround) ask_around_ = nullptr;
  decltype(&flexcclSetRecords) set_records_ = nullptr;
  decltype(&flexcclCommitted) committed_ = nullptr;
  decltype(&flexcclForget) forget_ = nullptr;
  decltype(&flexcclFind) find_ = nullptr;
  decltype(&ncclCommExportInfo) export_ = nullptr;
  decltype(&flexcclReplaceLater) replace_ = nullptr;
  decltype(&ncclInitNewNode) init_new_ = nullptr;
  decltype(&flexcclReplay) replay_ = nullptr;
  decltype(&flexcclAdopt) adopt_ = nullptr;
  decltype(&ncclCommSetupNewRank) setup_ = nullptr;
  decltype(&ncclGetLastError) last_error_ = nullptr;
  decltype(&flexcclSetDiverged) set_diverged_ = nullptr;
  decltype(&flexcclSetMaking) set_making_ = nullptr;
  decltype(&flexcclRankLeft) left_ = nullptr;
  decltype(&flexcclNumberOf) number_of_ = nullptr;
};

}  // namespace

void collectives_are_flexccl(void* library) {
  flexccl = library;
  if (auto* const set = reinterpret_cast<decltype(&flexcclSetLog)>(dlsym(library, "flexcclSetLog")))
    set(log::write_line<log::Module::kFlexccl>);
}

bool collectives_are_flexccl() {
  return flexccl != nullptr;
}

std::unique_ptr<Repair> Repair::load() {
  auto made = std::make_unique<Flexccl>();
  if (!flexccl || !made->open(flexccl)) return nullptr;
  return made;
}

}  // namespace pyft::backend
