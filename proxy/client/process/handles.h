// Minting of handles. Streams and events share one index space because an index is also the number
// of a completion word; each other kind has one of its own.
//
// An index is used again with the next generation, so that a value names one object for ever: in
// the ring, in the object log and in a replay. It must not be given back before the command that
// ends the object has been appended, since the server knows one object of an index at a time.
// Modules and kernels keep theirs: launches hold kernels without a lock.
#ifndef PYFT_CLIENT_PROCESS_HANDLES_H_
#define PYFT_CLIENT_PROCESS_HANDLES_H_

#include <cstdint>

#include "pyft/handle.h"

namespace pyft::client {

// 0 when all words are in use.
uint64_t mint_word_handle(HandleKind kind, void* (*make)(uint64_t handle, void* context),
                          void* context);
// The object of a live handle of this kind, else nullptr.
void* find_word_handle(uint64_t handle, HandleKind kind);
// Ends the handle and returns its object; the index may be minted again with the next generation.
void* end_word_handle(uint64_t handle, HandleKind kind);
// The same in two steps, where the word may still be published for the object that has ended.
void* end_but_for_word(uint64_t handle, HandleKind kind);
void end_word(uint64_t handle);

// Fresh handle of a kind without words; 0 when kMaxObjects live, which is said.
uint64_t mint_handle(HandleKind kind);
// The index may be minted again. Once for each handle.
void end_handle(uint64_t handle);
// The handle that was minted last of this kind and index, 0: none.
uint64_t last_handle(HandleKind kind, uint32_t index);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_PROCESS_HANDLES_H_
