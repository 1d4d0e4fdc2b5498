// Dual modular redundancy for nothing: activation checkpointing executes the forward pass a second
// time, and both executions of each product are compared (docs/concepts/redundancy.md).
#ifndef PYFT_SERVER_DMR_CHECKER_H_
#define PYFT_SERVER_DMR_CHECKER_H_

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/digest/digest.h"
#include "server/dmr/pairs.h"
#include "server/dmr/products.h"
#include "server/dmr/votes.h"

namespace pyft::server::dmr {

class Checker {
 public:
  using View = const void* (*)(unsigned long long address, unsigned long long bytes);
  // Any thread.
  struct Hears {
    virtual ~Hears() = default;
    // Two executions differ.
    virtual void mismatch(const std::string& text, const Dispute& dispute) = 0;
    // A replay has executed again what has differed.
    virtual void voted(const Votes::Said& said) = 0;
  };
  Checker(Session& session, View view, std::vector<Dispute> disputes, Hears& hears);

  // Executes an entry; a product between digests of what it reads and what it has written, made
  // when its stream comes there.
  Status perform(const EntryHeader& header, Body body, Body payload);
  // What was executed before is compared with nothing that follows.
  void at_cut(uint64_t number);

 private:
  struct Execution;
  bool can_look(const Product& product);
  void before(const std::shared_ptr<Execution>& execution);
  void after(const Execution& execution);

  Session& session_;
  View view_;
  Votes votes_;
  Hears& hears_;
  checkpoint::DigestKey key_;
  std::shared_ptr<Pairs> pairs_;
  uint64_t cut_ = 0;
};

// Executes with the session's checker. Precondition: it has one.
Status perform_checked(Session& session, const EntryHeader& header, Body body, Body payload);
void install(Session& session, std::unique_ptr<Checker> checker);
// Called before each entry; nothing without a checker.
void before_entry(Session& session, const ring::EntryView& entry);

}  // namespace pyft::server::dmr

#endif  // PYFT_SERVER_DMR_CHECKER_H_
