// What flexccl offers beyond NCCL: communicators that outlive their ranks. Communicators are
// ncclComm_t here, without NCCL's header, whose types flexccl.h has as well. Codes are
// ncclResult_t.
#ifndef PYFT_BACKEND_REPAIR_H_
#define PYFT_BACKEND_REPAIR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace pyft::backend {

using InfoBytes = std::vector<std::byte>;  // flexcclInfo_t

struct CommunicatorState {
  uint64_t key = 0;        // the communicator's number, the same at all ranks
  uint64_t operation = 0;  // complete here
  uint64_t done = 0, all_done = 0;
  uint64_t kept_bytes = 0;
  uint64_t owed = 0;  // the first operation for which others may need this process; 0: none
  bool replaying = false, recorded = false;
  uint64_t record_bytes = 0, record_budget = 0;
};

// What a region of records says about itself, to any process.
struct RegionHead {
  uint64_t key = 0;
  int slot = 0, slots = 0;
  uint64_t epoch = 0;
  bool closed = false;
};

// The backend's collectives are flexccl's, from this handle of dlopen(). That is said of no other
// handle.
void collectives_are_flexccl(void* library);
bool collectives_are_flexccl();

class Repair {
 public:
  // nullptr where the backend's collectives cannot be repaired.
  static std::unique_ptr<Repair> load();
  virtual ~Repair() = default;

  virtual bool state(void* comm, CommunicatorState* out) = 0;
  // The other ranks are asked soon what they have completed. Never waits.
  virtual int ask_around(void* comm) = 0;
  virtual int set_records(void* comm, void* base, size_t bytes) = 0;
  virtual int committed(void* comm, uint64_t operation) = 0;
  virtual int forget(void* base, size_t bytes) = 0;
  virtual int find(uint64_t key, void** comm) = 0;
  // false: nothing was ever recorded there.
  virtual bool head(const void* base, RegionHead* out) = 0;

  virtual int export_info(uint64_t key, int rank, InfoBytes* out) = 0;
  virtual int replace(uint64_t key, int rank, std::span<const std::byte> fresh) = 0;
  virtual int init_new(void** comm, std::span<const std::byte> exported, int rank,
                       InfoBytes* fresh) = 0;
  virtual int replay(void* comm, void* base, size_t bytes, uint64_t operation) = 0;
  virtual int adopt(void** comm, void* base, size_t bytes, uint64_t operation) = 0;
  virtual int setup(void* comm) = 0;
  // The sentence of the last failure in this thread.
  virtual const char* last_error() = 0;
  // Called when an operation is repeated with other inputs; any thread.
  virtual void set_diverged(void (*report)(uint64_t key, uint64_t operation, const char*)) = 0;
  // No rank takes this one's place any more (flexcclRankLeft).
  virtual int left(uint64_t key, int rank) = 0;
  // The communicator that is made with this unique id; false: it is none.
  virtual bool number_of(std::span<const std::byte> id, uint64_t* key) = 0;
  // flexcclSetMaking.
  virtual void set_making(int (*making)(uint64_t key, int rank, int size, int lost)) = 0;
};

}  // namespace pyft::backend

#endif  // PYFT_BACKEND_REPAIR_H_
