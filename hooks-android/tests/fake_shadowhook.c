/* Stands in for libshadowhook.so on x86-64 Linux. The real header declares it, so a compiler compares the two. It hooks
 * functions that begin with 16 bytes of nops. INIT_ERROR, PRESET_MODE and NO_UNHOOK choose how it behaves. */
#include <shadowhook.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef INIT_ERROR
#define INIT_ERROR 0
#endif
#ifdef PRESET_MODE
static int mode = PRESET_MODE;
#else
static int mode = -1;
#endif

static __thread int last;
static struct hook { unsigned char *target, before[16], after[16]; } hooks[16];

const char *shadowhook_get_version(void) { return SHADOWHOOK_VERSION; }
int shadowhook_init(shadowhook_mode_t wanted, bool debuggable) {
  (void)debuggable;
  if (mode < 0 && !INIT_ERROR) mode = (int)wanted;
  return INIT_ERROR;
}
shadowhook_mode_t shadowhook_get_mode(void) { return (shadowhook_mode_t)mode; }
bool shadowhook_get_debuggable(void) { return false; }
void shadowhook_set_debuggable(bool debuggable) { (void)debuggable; }
bool shadowhook_get_recordable(void) { return false; }
void shadowhook_set_recordable(bool recordable) { (void)recordable; }
int shadowhook_get_errno(void) { return last; }
const char *shadowhook_to_errmsg(int error) {
  return error == SHADOWHOOK_ERRNO_INIT_LINKER ? "Initialization linker failed" : "Some other error";
}

static void *failed(int error) { last = error; return 0; }
static int write_code(void *target, const void *bytes) {
  void *page = (void *)((uintptr_t)target & ~4095ul);
  if (mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) return SHADOWHOOK_ERRNO_MPROT;
  memcpy(target, bytes, 16);
  return 0;
}

void *shadowhook_hook_func_addr(void *target, void *new_addr, void **original) {
  static const unsigned char nops[16] = {0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
                                         0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90};
  if (mode < 0) return failed(SHADOWHOOK_ERRNO_UNINIT);
  if (!target || !new_addr) return failed(SHADOWHOOK_ERRNO_INVALID_ARG);
  struct hook *hook = 0;
  for (int i = 0; i < 16; i++) {
    if (hooks[i].target == target) return failed(SHADOWHOOK_ERRNO_HOOK_DUP);
    if (!hooks[i].target) hook = &hooks[i];
  }
  if (!hook) return failed(SHADOWHOOK_ERRNO_OOM);
  if (memcmp(target, nops, 16)) return failed(SHADOWHOOK_ERRNO_HOOK_REWRITE_FAILED);
  memcpy(hook->before, target, 16);
  memcpy(hook->after, "\xff\x25\0\0\0\0", 6);
  memcpy(hook->after + 6, &new_addr, 8);
  memcpy(hook->after + 14, nops, 2);
  *original = (char *)target + 16;
  int error = write_code(target, hook->after);
  if (error) return failed(error);
  hook->target = target;
  return hook;
}
void *shadowhook_hook_sym_addr(void *target, void *new_addr, void **original) {
  return shadowhook_hook_func_addr(target, new_addr, original);
}
void *shadowhook_hook_sym_name(const char *library, const char *symbol, void *new_addr, void **original) {
  return shadowhook_hook_sym_name_callback(library, symbol, new_addr, original, 0, 0);
}
void *shadowhook_hook_sym_name_callback(const char *library, const char *symbol, void *new_addr, void **original,
                                        shadowhook_hooked_t hooked, void *argument) {
  (void)library, (void)symbol, (void)new_addr, (void)original, (void)hooked, (void)argument;
  return failed(SHADOWHOOK_ERRNO_HOOK_DLSYM);
}
#ifndef NO_UNHOOK
int shadowhook_unhook(void *stub) {
  struct hook *hook = stub;
  if (!hook || !hook->target) return failed(SHADOWHOOK_ERRNO_UNHOOK_NOTFOUND), -1;
  if (memcmp(hook->target, hook->after, 16)) return failed(SHADOWHOOK_ERRNO_UNHOOK_TRAMPO_MISMATCH), -1;
  int error = write_code(hook->target, hook->before);
  if (error) return failed(error), -1;
  hook->target = 0;
  return 0;
}
#endif
char *shadowhook_get_records(uint32_t items) { (void)items; return 0; }
void shadowhook_dump_records(int fd, uint32_t items) { (void)fd, (void)items; }
void *shadowhook_dlopen(const char *library) { (void)library; return 0; }
void shadowhook_dlclose(void *handle) { (void)handle; }
void *shadowhook_dlsym(void *handle, const char *symbol) { (void)handle, (void)symbol; return 0; }
void *shadowhook_dlsym_dynsym(void *handle, const char *symbol) { (void)handle, (void)symbol; return 0; }
void *shadowhook_dlsym_symtab(void *handle, const char *symbol) { (void)handle, (void)symbol; return 0; }
void *shadowhook_get_prev_func(void *function) { (void)function; return 0; }
void shadowhook_pop_stack(void *address) { (void)address; }
void shadowhook_allow_reentrant(void *address) { (void)address; }
void shadowhook_disallow_reentrant(void *address) { (void)address; }
void *shadowhook_get_return_address(void) { return 0; }
