#include "flexccl.h"

#define ABI_TABLE flexccl_abi
#include "abi_table.inc"
