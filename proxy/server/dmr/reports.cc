#include "server/dmr/reports.h"

#include <utility>

#include "pyft/log.h"
#include "pyft/settings.h"

namespace pyft::server::dmr {

// Nothing that follows is given away: what replaces this server executes both again. A rank that
// shares communicators is not put right by that alone: others have what it has sent.
void Reports::mismatch(const std::string& text, const Dispute& dispute) {
  PYFT_LOG(kServer, kWarning, "mismatch %s", text.c_str());
  if (settings::dmr_action() == settings::DmrAction::kReport) return;
  const Digest digests[] = {dispute.inputs, dispute.first_outputs, dispute.second_outputs};
  agent_.send(msg::Mismatch{dispute.first, dispute.second, dispute.last},
              std::as_bytes(std::span(digests)));
  const bool spread = alone_ && session_.has_shared_communicator();
  session_.recovery().fail(spread ? ring::FaultKind::kMismatchSpread : ring::FaultKind::kMismatch,
                           0, text, dispute.second);
}

void Reports::voted(const Votes::Said& said) {
  const Dispute& dispute = *said.dispute;
  if (said.was_wrong) session_.recovery().told_wrong(dispute.first, dispute.last);
  if (said.culprit) agent_.send(msg::Vote{dispute.first, dispute.second, *said.culprit});
}

std::unique_ptr<Checker> make_checker(Session& session, Checker::View view, Checker::Hears& hears) {
  if (const uint64_t last = settings::dmr_told()) session.recovery().told_wrong(0, last);
  if (settings::dmr() != settings::Dmr::kCheckpoint || !view || settings::audit()) return nullptr;
  std::optional<std::vector<Dispute>> disputes = read_disputes(settings::dmr_disputes());
  if (!disputes) PYFT_LOG(kServer, kWarning, "PYFT_DMR_DISPUTES is damaged: there is no vote");
  return std::make_unique<Checker>(session, view,
                                   disputes ? std::move(*disputes) : std::vector<Dispute>{}, hears);
}

}  // namespace pyft::server::dmr
