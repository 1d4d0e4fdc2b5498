// Minting of handles. Streams and events share one index space because an index is also the number
// of a completion word; other kinds count up and never reuse an index.
#ifndef PYFT_CLIENT_HANDLES_H_
#define PYFT_CLIENT_HANDLES_H_

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

// Fresh handle of a kind without words.
uint64_t mint_handle(HandleKind kind);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_HANDLES_H_
