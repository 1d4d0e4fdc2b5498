#include "server/dmr/reports.h"

#include <utility>

#include "backend/inject.h"
#include "backend/twice.h"
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

namespace {

bool checks_products() {
  const auto mode = settings::dmr();
  return mode == settings::Dmr::kCheckpoint || mode == settings::Dmr::kIdle ||
         mode == settings::Dmr::kFull;
}

// Of the memory of the whole device: what is free now the program may want.
uint64_t memory_of(const Session& session) {
  size_t free = 0, all = 0;
  const auto ask = session.backend().cudaMemGetInfo;
  if (!ask || ask(&free, &all)) return 0;
  return static_cast<uint64_t>(settings::dmr_memory() * static_cast<double>(all));
}

SecondExecutions::Options second_options(const Session& session) {
  SecondExecutions::Options options;
  const auto mode = settings::dmr();
  if (mode == settings::Dmr::kIdle) options.mode = SecondExecutions::Mode::kIdle;
  if (mode == settings::Dmr::kFull) options.mode = SecondExecutions::Mode::kFull;
  if (options.mode == SecondExecutions::Mode::kNone) return options;
  options.share = settings::dmr_budget();
  options.memory = memory_of(session);
  options.places = settings::dmr_where() == settings::DmrWhere::kPermuted ? 1 : 0;
  return options;
}

}  // namespace

std::unique_ptr<Checker> make_checker(Session& session, View view, Checker::Hears& hears) {
  if (const uint64_t last = settings::dmr_told()) session.recovery().told_wrong(0, last);
  if (!checks_products() || !view || settings::audit()) return nullptr;
  std::optional<std::vector<Dispute>> disputes = read_disputes(settings::dmr_disputes());
  if (!disputes) PYFT_LOG(kServer, kWarning, "PYFT_DMR_DISPUTES is damaged: there is no vote");
  const char* const library = settings::backend_library();
  Checker::Options options{view,
                           backend::execute_again(library),
                           backend::execute_twice(library),
                           second_options(session),
                           {}};
  if (disputes) options.disputes = std::move(*disputes);
  return std::make_unique<Checker>(session, std::move(options), hears);
}

}  // namespace pyft::server::dmr
