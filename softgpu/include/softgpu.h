// What the soft GPU offers beside the vendor's interfaces. The rest of its public interface are the
// vendor symbols themselves, in cuda.h, cuda_runtime_api.h, cublas_v2.h and cublasLt.h.
#ifndef SOFTGPU_SOFTGPU_H_
#define SOFTGPU_SOFTGPU_H_

#ifdef __cplusplus
extern "C" {
#endif

// What the library says by itself, a line without its end; null: on stderr, with "softgpu: " before
// it. Called in any thread. An error: a device has failed, once in a process for each.
enum softgpu_log_level { SOFTGPU_LOG_ERROR = 0, SOFTGPU_LOG_WARNING = 1, SOFTGPU_LOG_INFO = 2 };
typedef void (*softgpu_log_t)(enum softgpu_log_level level, const char* sentence);
void softgpu_set_log(softgpu_log_t log);

// The instruction set that kernels are executed with: x86-64, x86-64-v3 (AVX2) or x86-64-v4
// (AVX-512). The loader has chosen it; results are the same bits with each.
const char* softgpu_instruction_set(void);

// 1: the exported function of this name only says that it is not supported.
int softgpu_is_stub(const char* name);

// Ends a device for this process as a fault of its work would: what is queued is dropped and every
// later call returns `cuda_error` (214 uncontained and 226 contained memory error, 700 illegal
// address, 702 timeout, 710 assert, 714 stack error, 715 illegal instruction, 716 misaligned
// address, 717 address space, 718 program counter, 719 launch failure, 999 device lost). Returns 0,
// or 1 for another number or a device that is not there. Does not wait for the running work.
int softgpu_fail(int device, int cuda_error);

// Faults on request, in the language of README.md ("Faults on request"), which SOFTGPU_FAULT and
// the control file speak as well:
//   "lost device=1 at=1000; slow factor=3"    "hang in=1"    "resume"    "flip allocation=2 bit=7"
// A fault without at, in and kernel happens before the call returns; the others happen at a launch.
// All or none of the faults are taken. Returns 0; or 1 with a sentence in `problem` (at most
// `bytes` with the terminating zero; may be null). Callable from any thread, not from a host
// function.
int softgpu_inject(const char* faults, char* problem, unsigned long long bytes);
// The same without doing anything, and without a device: are these faults well written?
int softgpu_check_faults(const char* faults, char* problem, unsigned long long bytes);

// From now on the byte that a request names by note= (0 to 255) becomes 1 when it has come to pass.
// `notes` has 256 bytes, which this library never clears; null: not noted.
void softgpu_note_faults(unsigned char* notes);
// A line for each request that has not come to pass so far, with the reason, as stderr gets them
// when the process calls exit(); at most `bytes` with the terminating zero.
void softgpu_missed_faults(char* text, unsigned long long bytes);

enum { SOFTGPU_ECC_UNCONTAINED = 214, SOFTGPU_ECC_CONTAINED = 226, SOFTGPU_DEVICE_LOST = 999 };
enum softgpu_needs {
  SOFTGPU_NEEDS_NOTHING = 0,
  SOFTGPU_NEEDS_NEW_PROCESS = 1,
  SOFTGPU_NEEDS_RESET = 2,
  SOFTGPU_NEEDS_REPLACEMENT = 3,
};

typedef struct softgpu_state {
  int error;                    // the CUDA error that every call returns, 0: the device works
  int needs;                    // softgpu_needs: what it takes until a device works again
  int hanging;                  // launches that hang because that was asked for
  unsigned long long launches;  // kernel launches and BLAS calls that this process has begun
} softgpu_state;
// Returns 0, or 1 for a device that is not there.
int softgpu_device_state(int device, softgpu_state* state);

// Warp instructions that a device has executed in this process.
unsigned long long softgpu_warp_instructions(int device);

// Nanoseconds that a device has spent in kernels in this process, launch cost included.
unsigned long long softgpu_kernel_time_ns(int device);

// Appends function(data) to a stream (a CUstream or cudaStream_t, 0, 1 and 2 included). Unlike a
// host function it runs on the thread that executes the device's work, without a thread switch, or
// inside this call if nothing is left to do before it: it must not block and must not call any
// function of this library. Like a host function it never runs if the device fails before. Returns
// a CUresult.
int softgpu_publish(void* stream, void (*function)(void*), void* data);

// Like softgpu_publish, and the stream then stands still until softgpu_resume(data) has been called
// with the same data, from any thread and once; other streams go on. For work that is done outside
// the device in stream order and may wait for other processes. If the device fails first, function
// never runs and softgpu_resume must not be called. Returns a CUresult.
int softgpu_suspend(void* stream, void (*function)(void*), void* data);
void softgpu_resume(void* data);

// Executes the next ready work of a device in the calling thread, so that a thread which submits
// and would then sleep saves two thread switches. Returns 1 if it executed something; 0 if nothing
// is ready, or another thread executes some. From its first call on the thread is lent to the
// device: what it submits may stay undone until it calls this again or waits for the device, so it
// calls this until 0 before it sleeps. Results are the same bits whichever thread executes the
// work.
int softgpu_work(int device);

// For snapshots of a device's memory from outside and their return into another process.
//
// Where this process can read device memory and variables of modules: at their addresses. Null when
// the range is not all mapped, or is none of the device's.
const void* softgpu_view(unsigned long long address, unsigned long long bytes);
// 1: this memory (made with cuMemCreate) is all zeros since nothing has looked at it yet. Looking
// at it through softgpu_view changes that.
int softgpu_untouched(unsigned long long address, unsigned long long bytes);
// Where the variables of a module (a CUmodule) lie on its device, constants included; 0 bytes if it
// has none. Returns a CUresult.
int softgpu_module_variables(void* module, unsigned long long* address, unsigned long long* bytes);
// Where malloc of kernels takes memory from; 0 bytes while no kernel has asked for any. `create`:
// as if one had. Returns 0, or 1 when there is no such device or no memory.
int softgpu_kernel_heap(int device, int create, unsigned long long* address,
                        unsigned long long* bytes);
// The next variables or heap of this device come to lie at `address`, where such have lain before;
// loading fails if the place is taken. 0 takes the wish back. Returns 0, or 1 for no such device.
int softgpu_place(int device, unsigned long long address);

#ifdef __cplusplus
}
#endif

#endif  // SOFTGPU_SOFTGPU_H_
