// What is done about mismatches: the server ends, and the agent learns what differs. The next
// server tells it which of the two was wrong.
#ifndef PYFT_SERVER_DMR_REPORTS_H_
#define PYFT_SERVER_DMR_REPORTS_H_

#include <memory>
#include <string>

#include "server/dmr/checker.h"
#include "server/recovery/agent_link.h"

namespace pyft::server::dmr {

class Reports : public Checker::Hears {
 public:
  // `alone`: a replay of this rank gets results of collectives from records.
  Reports(Session& session, AgentLink& agent, bool alone)
      : session_(session), agent_(agent), alone_(alone) {}
  // Ends this process, unless it is only reported.
  void mismatch(const std::string& text, const Dispute& dispute) override;
  void voted(const Votes::Said& said) override;

 private:
  Session& session_;
  AgentLink& agent_;
  const bool alone_;
};

// A checker that knows what servers before this one have found; nullptr if products are not
// checked.
std::unique_ptr<Checker> make_checker(Session& session, View view, Checker::Hears& hears);

}  // namespace pyft::server::dmr

#endif  // PYFT_SERVER_DMR_REPORTS_H_
