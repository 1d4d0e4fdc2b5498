// Dual modular redundancy: what is executed twice, by the program or by the server, has to give the
// same bits (docs/concepts/redundancy.md, second-executions.md).
#ifndef PYFT_SERVER_DMR_CHECKER_H_
#define PYFT_SERVER_DMR_CHECKER_H_

#include <memory>
#include <string>
#include <vector>

#include "server/dmr/kernels.h"
#include "server/dmr/second_executions.h"
#include "server/dmr/votes.h"

namespace pyft::server::dmr {

class Checker : private SecondExecutions::Hears, private Kernels::Hears {
 public:
  // Any thread.
  struct Hears {
    virtual ~Hears() = default;
    // Two executions differ.
    virtual void mismatch(const std::string& text, const Dispute& dispute) = 0;
    // A replay has executed again what has differed.
    virtual void voted(const Votes::Said& said) = 0;
  };
  struct Options {
    View view = nullptr;
    ExecuteAgain again = nullptr;
    backend::ExecuteTwice twice = nullptr;
    SecondExecutions::Options second;  // but its key
    std::vector<Dispute> disputes;
  };
  Checker(Session& session, Options options, Hears& hears);

  // Executes an entry; a product between digests of what it reads and what it has written, made
  // when its stream comes there.
  Status perform(const EntryHeader& header, Body body, Body payload);
  // What was executed before is compared with nothing that follows.
  void at_cut(uint64_t number);
  SecondExecutions& second_executions() { return second_executions_; }

 private:
  bool can_look(const Product& product);
  void before(Execution* execution);
  void after(Execution* execution);
  void executed_again(const Execution& execution, const Digest& outputs) override;
  void executed_twice(const Launch& launch, const std::string& kernel) override;
  void compare_pair(const Execution& execution);
  void cover(const Execution& execution, Rotation::Name name);
  void mismatch(uint64_t cut, const std::string& what, const std::string& than,
                const Dispute& dispute);
  ring::ControlPage& counters() { return session_.channel().control(); }

  Session& session_;
  const View view_;
  Votes votes_;
  Checker::Hears& hears_;
  checkpoint::DigestKey key_;
  std::shared_ptr<Pairs> pairs_;
  uint64_t cut_ = 0;
  SecondExecutions second_executions_;
  Kernels kernels_;
};

// Executes with the session's checker. Precondition: it has one.
Status perform_checked(Session& session, const EntryHeader& header, Body body, Body payload);
void install(Session& session, std::unique_ptr<Checker> checker);
// Called before each entry, and when there is none and the device does nothing; nothing without a
// checker.
void before_entry(Session& session, const ring::EntryView& entry);
void while_idle(Session& session);

}  // namespace pyft::server::dmr

#endif  // PYFT_SERVER_DMR_CHECKER_H_
