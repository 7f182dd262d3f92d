// A library that calls imported functions in each way a slot can be used. No header is needed, so it is linked for any system.

typedef unsigned long size_t;

extern void *malloc(size_t);
extern void free(void *);
extern long read(int, void *, size_t);
extern int pthread_mutex_lock(void *);
extern int pthread_mutex_unlock(void *);
extern char **environ;

// Pointers in data, in the writable segment and in the one that becomes read-only.
void *(*volatile allocate)(size_t) = malloc;
void (*const volatile release)(void *) = free;
int (*const volatile locks[])(void *) = {pthread_mutex_lock, pthread_mutex_unlock, pthread_mutex_lock};
// Something added to an import's address: no function, whatever its name.
void *volatile in_the_middle = (char *)&environ + 8;
void *volatile beside_malloc = (char *)malloc + 4;

// A rebase.
static int number = 42;
int *volatile pointer_to_number = &number;

void *call_malloc(size_t bytes) { return malloc(bytes); }
void *call_malloc_by_pointer(size_t bytes) { return allocate(bytes); }
long call_read(int file, void *buffer, size_t bytes) { return read(file, buffer, bytes); }
int call_lock(void *lock) { return pthread_mutex_lock(lock) + 10 * pthread_mutex_unlock(lock); }
int call_lock_by_pointer(void *lock) { return locks[2](lock); }
int call_free_compares(void *block) {
  free(block);
  return release == free;
}
int call_number(void) { return *pointer_to_number; }
