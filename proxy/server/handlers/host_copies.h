// Copies between the device and client memory, as a recovery needs them: what is read is kept in
// the journal at the moment the stream reads it, and what an earlier server has finished writing is
// never written again, only compared.
#ifndef PYFT_SERVER_HANDLERS_HOST_COPIES_H_
#define PYFT_SERVER_HANDLERS_HOST_COPIES_H_

#include "pyft/function_ref.h"
#include "server/handlers/handlers.h"

namespace pyft::server {

// One side of a copy that lies in client memory (the pinned window or the bounce area).
bool in_client_memory(Session& session, uint64_t address, uint64_t bytes);

// Ends a replay of an entry for which the journal had no room. It would read other bytes, or write
// over what the client has in that memory now.
void require_kept(Session& session, uint64_t seq, const char* what);

// Address to read `bytes` from instead of `source`. Call before the copy is given to the stream.
uint64_t journaled_source(Session& session, const EntryHeader& header, uint64_t index,
                          uint64_t source, uint64_t bytes, CUstream stream);

// Where a copy writes instead of `target`, and what follows it in the stream.
class JournaledResult {
 public:
  JournaledResult(Session& session, const EntryHeader& header, uint64_t index, uint64_t target,
                  uint64_t bytes);
  uint64_t address() const { return address_; }
  // The copy is in the stream: what follows it there notes or compares the result.
  int finish(CUstream stream);

 private:
  Session& session_;
  uint64_t seq_, address_, bytes_;
  uint16_t call_;
  ring::JournalRecord* record_ = nullptr;
  std::byte* scratch_ = nullptr;  // the result is only compared
};

// cuMemcpyAsync with all of this.
int copy_journaled(Session& session, const EntryHeader& header, uint64_t target, uint64_t source,
                   uint64_t bytes, CUstream stream);

// The same for rows. What lies between the rows in client memory is read and never written.
int copy_2d_journaled(Session& session, const EntryHeader& header,
                      const cmd::cudaMemcpy2DAsync& command, CUstream stream);

// Has the stream put so many bytes at the target, where they are nothing but what the command says:
// `fill` gives that to the stream, and returns the backend's code.
int fill_journaled(Session& session, const EntryHeader& header, uint64_t target, uint64_t bytes,
                   CUstream stream, FunctionRef<int()> fill);

}  // namespace pyft::server

#endif  // PYFT_SERVER_HANDLERS_HOST_COPIES_H_
