// The offsets that the crate reads fields at. A test appends its constants.
#include <Block.h>
#include <dispatch/dispatch.h>
#include <dlfcn.h>
#include <mach-o/fat.h>
#include <mach-o/fixup-chains.h>
#include <mach-o/loader.h>
#include <mach-o/nlist.h>
#include <mach/mach_types.h>
#include <mach/machine.h>
#include <mach/thread_act.h>
#include <mach/thread_info.h>
#include <mach/vm_map.h>
#include <mach/vm_prot.h>
#include <mach/vm_region.h>
#include <os/lock.h>
#include <stddef.h>
#include <sys/resource.h>

#define AT(type, field, offset) _Static_assert(offsetof(struct type, field) == offset, #type "." #field)

// collector/src/apple/resources.rs
_Static_assert(sizeof(struct rusage_info_v4) == 296 && RUSAGE_INFO_V4 == 4, "rusage_info_v4");
AT(rusage_info_v4, ri_pkg_idle_wkups, 32);
AT(rusage_info_v4, ri_interrupt_wkups, 40);
AT(rusage_info_v4, ri_pageins, 48);
AT(rusage_info_v4, ri_resident_size, 64);
AT(rusage_info_v4, ri_phys_footprint, 72);
AT(rusage_info_v4, ri_diskio_bytesread, 144);
AT(rusage_info_v4, ri_diskio_byteswritten, 152);
AT(rusage_info_v4, ri_billed_energy, 264);
// image.rs
AT(mach_header_64, cputype, 4);
AT(mach_header_64, cpusubtype, 8);
AT(mach_header_64, ncmds, 16);
AT(mach_header_64, sizeofcmds, 20);
AT(mach_header_64, flags, 24);
AT(segment_command_64, segname, 8);
AT(segment_command_64, vmaddr, 24);
AT(segment_command_64, vmsize, 32);
AT(segment_command_64, fileoff, 40);
AT(segment_command_64, filesize, 48);
AT(segment_command_64, initprot, 60);
AT(segment_command_64, nsects, 64);
AT(segment_command_64, flags, 68);
_Static_assert(sizeof(struct segment_command_64) == 72, "sections follow");
AT(section_64, addr, 32);
AT(section_64, size, 40);
AT(section_64, flags, 64);
AT(section_64, reserved1, 68);
AT(symtab_command, symoff, 8);
AT(symtab_command, nsyms, 12);
AT(symtab_command, stroff, 16);
AT(symtab_command, strsize, 20);
AT(dysymtab_command, indirectsymoff, 56);
AT(dysymtab_command, nindirectsyms, 60);
AT(dyld_info_command, rebase_off, 8);
AT(dyld_info_command, bind_off, 16);
AT(dyld_info_command, weak_bind_off, 24);
AT(dyld_info_command, lazy_bind_off, 32);
AT(linkedit_data_command, dataoff, 8);
AT(linkedit_data_command, datasize, 12);
AT(dylib_command, dylib.name.offset, 8);
// indirect.rs
AT(nlist_64, n_un.n_strx, 0);
AT(nlist_64, n_desc, 6);
_Static_assert(GET_LIBRARY_ORDINAL(0x1234) == 0x12, "the upper byte");
_Static_assert(EXECUTABLE_ORDINAL == 0xff && DYNAMIC_LOOKUP_ORDINAL == 0xfe, "special ordinals");
// source.rs
AT(fat_header, nfat_arch, 4);
AT(fat_arch, offset, 8);
AT(fat_arch_64, offset, 8);
_Static_assert(sizeof(struct fat_arch) == 20 && sizeof(struct fat_arch_64) == 32, "entries");
// chains.rs
AT(dyld_chained_fixups_header, starts_offset, 4);
AT(dyld_chained_fixups_header, imports_offset, 8);
AT(dyld_chained_fixups_header, symbols_offset, 12);
AT(dyld_chained_fixups_header, imports_count, 16);
AT(dyld_chained_fixups_header, imports_format, 20);
AT(dyld_chained_fixups_header, symbols_format, 24);
AT(dyld_chained_starts_in_image, seg_info_offset, 4);
AT(dyld_chained_starts_in_segment, page_size, 4);
AT(dyld_chained_starts_in_segment, pointer_format, 6);
AT(dyld_chained_starts_in_segment, segment_offset, 8);
AT(dyld_chained_starts_in_segment, page_count, 20);
AT(dyld_chained_starts_in_segment, page_start, 22);
_Static_assert(DYLD_CHAINED_PTR_ARM64E == 1 && DYLD_CHAINED_PTR_64 == 2 && DYLD_CHAINED_PTR_64_OFFSET == 6, "formats");
_Static_assert(DYLD_CHAINED_PTR_ARM64E_USERLAND == 9 && DYLD_CHAINED_PTR_ARM64E_USERLAND24 == 12, "formats");
// memory.rs
_Static_assert(VM_PROT_READ == 1 && VM_PROT_COPY == 0x10, "protections");
_Static_assert(VM_REGION_BASIC_INFO_64 == 9 && VM_REGION_BASIC_INFO_COUNT_64 == 9, "flavor");
_Static_assert(sizeof(vm_address_t) == 8 && sizeof(vm_size_t) == 8 && sizeof(mach_port_t) == 4, "types of arguments");
kern_return_t (*protect)(vm_map_t, vm_address_t, vm_size_t, boolean_t, vm_prot_t) = vm_protect;
kern_return_t (*region)(vm_map_read_t, vm_address_t *, vm_size_t *, vm_region_flavor_t, vm_region_info_t, mach_msg_type_number_t *,
                        mach_port_t *) = vm_region_64;
AT(vm_region_basic_info_64, offset, 20);
AT(vm_region_basic_info_64, user_wired_count, 32);
// system/unfair.rs
_Static_assert(sizeof(os_unfair_lock) == 4, "a word");
_Static_assert(THREAD_IDENTIFIER_INFO == 4 && THREAD_IDENTIFIER_INFO_COUNT == 6, "flavor");
AT(thread_identifier_info, thread_id, 0);
kern_return_t (*info)(thread_inspect_t, thread_flavor_t, thread_info_t, mach_msg_type_number_t *) = thread_info;
void (*lock)(os_unfair_lock_t) = os_unfair_lock_lock;
_Bool (*trylock)(os_unfair_lock_t) = os_unfair_lock_trylock;
void (*unlock)(os_unfair_lock_t) = os_unfair_lock_unlock;
// system/dispatch.rs
_Static_assert(DISPATCH_TIME_NOW == 0ull && sizeof(dispatch_time_t) == 8, "a time");
_Static_assert(sizeof(intptr_t) == 8, "results");
intptr_t (*semaphore_wait)(dispatch_semaphore_t, dispatch_time_t) = dispatch_semaphore_wait;
intptr_t (*semaphore_signal)(dispatch_semaphore_t) = dispatch_semaphore_signal;
intptr_t (*group_wait)(dispatch_group_t, dispatch_time_t) = dispatch_group_wait;
void (*group_leave)(dispatch_group_t) = dispatch_group_leave;
void (*async)(dispatch_queue_t, dispatch_block_t) = dispatch_async;
void (*async_f)(dispatch_queue_t, void *, dispatch_function_t) = dispatch_async_f;
void (*barrier_async)(dispatch_queue_t, dispatch_block_t) = dispatch_barrier_async;
void (*barrier_async_f)(dispatch_queue_t, void *, dispatch_function_t) = dispatch_barrier_async_f;
void (*after)(dispatch_time_t, dispatch_queue_t, dispatch_block_t) = dispatch_after;
void (*after_f)(dispatch_time_t, dispatch_queue_t, void *, dispatch_function_t) = dispatch_after_f;
void (*group_async)(dispatch_group_t, dispatch_queue_t, dispatch_block_t) = dispatch_group_async;
void (*group_async_f)(dispatch_group_t, dispatch_queue_t, void *, dispatch_function_t) = dispatch_group_async_f;
void (*group_notify)(dispatch_group_t, dispatch_queue_t, dispatch_block_t) = dispatch_group_notify;
void (*group_notify_f)(dispatch_group_t, dispatch_queue_t, void *, dispatch_function_t) = dispatch_group_notify_f;
void (*sync_)(dispatch_queue_t, dispatch_block_t) = dispatch_sync;
void (*sync_f)(dispatch_queue_t, void *, dispatch_function_t) = dispatch_sync_f;
void (*barrier_sync)(dispatch_queue_t, dispatch_block_t) = dispatch_barrier_sync;
void (*barrier_sync_f)(dispatch_queue_t, void *, dispatch_function_t) = dispatch_barrier_sync_f;
void (*async_and_wait)(dispatch_queue_t, dispatch_block_t) = dispatch_async_and_wait;
void (*async_and_wait_f)(dispatch_queue_t, void *, dispatch_function_t) = dispatch_async_and_wait_f;
void (*barrier_and_wait)(dispatch_queue_t, dispatch_block_t) = dispatch_barrier_async_and_wait;
void (*barrier_and_wait_f)(dispatch_queue_t, void *, dispatch_function_t) = dispatch_barrier_async_and_wait_f;
// system/blocks.rs
void *(*block_copy)(const void *) = _Block_copy;
void (*block_release)(const void *) = _Block_release;
dispatch_block_t (*block_create)(dispatch_block_flags_t, dispatch_block_t) = dispatch_block_create;
_Static_assert(sizeof(dispatch_block_flags_t) == 8, "a word");
// system/library.rs
int (*close_library)(void *) = dlclose;
