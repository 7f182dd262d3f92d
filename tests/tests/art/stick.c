// A native method of Program.java that stays in the state in which Java code runs.
#include <stdint.h>
#include <unistd.h>

void Java_Program_stick(void *env, void *class, int32_t ms) {
    for (int32_t i = 0; i < ms; i++) usleep(1000);
}
