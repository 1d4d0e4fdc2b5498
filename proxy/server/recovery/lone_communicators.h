// Communicators of an auditor: they have a rank and a size, and no other ranks. Those of before the
// snapshot are in the table of the rank's store, as are those that the replay makes.
#ifndef PYFT_SERVER_RECOVERY_LONE_COMMUNICATORS_H_
#define PYFT_SERVER_RECOVERY_LONE_COMMUNICATORS_H_

#include <string>

#include "backend/backend.h"
#include "checkpoint/recovery/recovery.h"
#include "checkpoint/resources/communicators.h"

namespace pyft::server {

class LoneCommunicators : public checkpoint::CommunicatorRecovery {
 public:
  explicit LoneCommunicators(ring::Channel& channel) : table_(channel) {}
  bool can_replace() const override { return true; }
  bool makes_all_again() const override { return true; }
  std::string rejoin() override { return {}; }
  void* made_before(uint64_t handle, uint64_t seq) override;
  void divides(uint64_t handle, uint64_t parent, uint64_t how) override;
  void made(void*, uint64_t, uint64_t, int, int) override {}
  void ended(uint64_t, uint64_t) override {}
  void let_go(uint64_t) override {}

 private:
  checkpoint::CommunicatorTable table_;
};

// The table with functions for such communicators in the place of a library's. Collectives are not
// among them: see session/kept.h.
backend::Table with_lone_communicators(backend::Table table);

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_LONE_COMMUNICATORS_H_
