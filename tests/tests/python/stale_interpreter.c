/* A library that looks like CPython 3.12 to whoever reads its structures, with nothing behind it. Offsets: Include/internal of
   that version. Its frames lead to pages that come and go while threads are recorded.

   As a library (-shared) it has what an interpreter exports and the code that "runs" frames; stale_frames.c uses it. */
#include <stdint.h>
#include <string.h>

#define WORD(object, offset) (*(volatile uint64_t *)((char *)(object) + (offset)))

uint64_t _PyRuntime[256];
uint64_t PyCode_Type[64];
const unsigned long Py_Version = 0x030c0000;
void Py_NewRef(void) {}

static uint64_t interpreter[64];
static int lock;

/* Makes the calling thread one of the interpreter's: state takes 512 bytes. */
void stale_thread(uint64_t *state, uint64_t self)
{
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {}
    WORD(_PyRuntime, 40) = (uint64_t)interpreter;
    WORD(state, 16) = (uint64_t)interpreter;
    WORD(state, 136) = self;
    WORD(state, 56) = (uint64_t)((char *)state + 200);
    WORD(state, 8) = WORD(interpreter, 72);
    if (WORD(interpreter, 72)) WORD(WORD(interpreter, 72), 0) = (uint64_t)state;
    WORD(interpreter, 64)++;
    WORD(interpreter, 72) = (uint64_t)state;
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
}

/* A code object and the texts that it leads to, in 1,024 bytes. */
void stale_code(char *at, char *texts, const char *name)
{
    WORD(at, 128) = (uint64_t)texts;
    WORD(at, 112) = (uint64_t)(texts + 256);
    *(volatile uint32_t *)(at + 68) = 7;
    WORD(at, 136) = (uint64_t)(texts + 512);
    for (int i = 0; i < 2; i++) {
        char *text = texts + 256 * i;
        const char *characters = i ? "stale.py" : name;
        WORD(text, 16) = strlen(characters);
        *(volatile uint32_t *)(text + 32) = 1 << 2 | 1 << 5 | 1 << 6;
        memcpy(text + 40, characters, strlen(characters));
    }
    WORD(texts + 512, 16) = 0;
    /* Last: by this it is one. */
    __asm__ volatile("" ::: "memory");
    WORD(at, 8) = (uint64_t)PyCode_Type;
}

/* "Runs" frames that hang together, from innermost to outermost, around a call. */
__attribute__((noinline)) void stale_run(uint64_t *state, char *innermost, char *outermost, void (*call)(void))
{
    uint64_t cframe[2], shim[10] = {0};
    uint64_t outer = WORD(state, 56);
    WORD(outermost, 8) = (uint64_t)shim;
    ((char *)shim)[70] = 3;
    shim[1] = WORD(outer, 0);
    cframe[0] = (uint64_t)innermost;
    cframe[1] = outer;
    WORD(state, 56) = (uint64_t)cframe;
    __asm__ volatile("" ::: "memory");
    call();
    WORD(state, 56) = outer;
}
