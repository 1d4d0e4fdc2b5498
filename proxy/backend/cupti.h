// CUPTI of the library that the server works with: the soft GPU's own, or the vendor's.
#ifndef PYFT_BACKEND_CUPTI_H_
#define PYFT_BACKEND_CUPTI_H_

#include <cupti_activity.h>

#include <string>

namespace pyft::backend {

struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) push_id = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_id = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped = nullptr;
};

// Loaded at the first call. `library` as for load() in backend.h. Not empty: why there is none.
const std::string& load_cupti(const char* library, Cupti* out);

}  // namespace pyft::backend

#endif  // PYFT_BACKEND_CUPTI_H_
