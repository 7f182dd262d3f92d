// Calls of what only Apple's systems have, in each way that the tests need. No header is needed, so it is linked for any system.

typedef unsigned long size_t;
typedef unsigned long long u64;
typedef void (^block)(void);

extern void *malloc(size_t);
extern void *calloc(size_t, size_t);
extern void *realloc(void *, size_t);
extern void free(void *);
extern void os_unfair_lock_lock(void *);
extern _Bool os_unfair_lock_trylock(void *);
extern void os_unfair_lock_unlock(void *);
extern int __ulock_wait(unsigned, void *, u64, unsigned);
extern int __ulock_wake(unsigned, void *, u64);
extern int os_sync_wait_on_address(void *, u64, size_t, unsigned);
extern int os_sync_wake_by_address_all(void *, size_t, unsigned);
extern int objc_sync_enter(void *);
extern int objc_sync_exit(void *);
extern long dispatch_semaphore_wait(void *, u64);
extern long dispatch_semaphore_signal(void *);
extern long dispatch_group_wait(void *, u64);
extern void dispatch_group_leave(void *);
extern void dispatch_async(void *, block);
extern void dispatch_async_f(void *, void *, void (*)(void *));
extern void dispatch_after(u64, void *, block);
extern void dispatch_group_async(void *, void *, block);
extern void dispatch_sync(void *, block);
extern void CFRunLoopRun(void);
extern int CFRunLoopRunInMode(const void *, double, unsigned char);
extern void *dlopen(const char *, int);
extern int dlclose(void *);

void call_lock(void *lock) { os_unfair_lock_lock(lock); }
int call_trylock(void *lock) { return os_unfair_lock_trylock(lock); }
void call_unlock(void *lock) { os_unfair_lock_unlock(lock); }
int call_ulock_wait(void *word, u64 value) { return __ulock_wait(1, word, value, 0); }
int call_ulock_wake(void *word) { return __ulock_wake(1, word, 0); }
int call_wait_on_address(void *word, u64 value) { return os_sync_wait_on_address(word, value, 4, 0); }
int call_wake_all(void *word) { return os_sync_wake_by_address_all(word, 4, 0); }
int call_enter(void *object) { return objc_sync_enter(object); }
int call_exit(void *object) { return objc_sync_exit(object); }
long call_semaphore_wait(void *semaphore, u64 timeout) { return dispatch_semaphore_wait(semaphore, timeout); }
long call_semaphore_signal(void *semaphore) { return dispatch_semaphore_signal(semaphore); }
long call_group_wait(void *group, u64 timeout) { return dispatch_group_wait(group, timeout); }
void call_group_leave(void *group) { dispatch_group_leave(group); }

// Blocks that have captured something, so that they are copied.
void call_async(void *queue, void (*work)(int), int number) {
  dispatch_async(queue, ^{ work(number); });
}
void call_async_f(void *queue, void *context, void (*work)(void *)) { dispatch_async_f(queue, context, work); }
void call_after(void *queue, void (*work)(int), int number) {
  dispatch_after(1, queue, ^{ work(number); });
}
void call_group_async(void *group, void *queue, void (*work)(int), int number) {
  dispatch_group_async(group, queue, ^{ work(number); });
}
int call_sync(void *queue, int (*work)(int), int number) {
  __block int result = 0;
  dispatch_sync(queue, ^{ result = work(number); });
  return result;
}
void call_async_as_it_is(void *queue, block made) { dispatch_async(queue, made); }

// Bytes: 100, 3 times 40, and 1000 in the place of 100. Volatile, so that the compiler leaves them out nowhere.
void call_allocations(void) {
  void *volatile first = malloc(100);
  void *volatile second = calloc(3, 40);
  first = realloc(first, 1000);
  free(first);
  free(second);
}
// No tail call: the function is its caller.
void *call_dlopen(const char *path, int mode) {
  void *volatile library = dlopen(path, mode);
  return library;
}
int call_dlclose(void *library) { return dlclose(library); }
void call_run(void) { CFRunLoopRun(); }
int call_run_in_mode(const void *mode) { return CFRunLoopRunInMode(mode, 2.5, 1); }
