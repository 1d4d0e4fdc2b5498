// Which entries change nothing that a snapshot looks at, and which end it.
#ifndef PYFT_SERVER_RECOVERY_READS_H_
#define PYFT_SERVER_RECOVERY_READS_H_

#include "ring/reader.h"
#include "server/session/session.h"

namespace pyft::server {

// True: it leaves the device's memory, its mappings and its objects as they are, and does nothing
// that goes to other ranks. It may copy to client memory, and be a mark. Few entries are known to:
// those by which programs read results.
bool only_reads(const Session& session, const ring::EntryView& entry);
// True: memory that a snapshot looks at may not be there, or not be accessible, after it.
bool takes_memory_away(const ring::EntryView& entry);

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_READS_H_
