#include <nccl.h>

#define ABI_TABLE nccl_abi
#include "abi_table.inc"
