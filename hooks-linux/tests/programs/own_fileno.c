// A program with a function of its own by the name of one of libc's that the agent might use.
#include "show.h"

int fileno(FILE *stream) {
    (void)stream;
    abort();
}

int main(int count, char **arguments) {
    char line[100];
    FILE *file = fopen(arguments[1], "w+");
    SHOW(fputs("text\n", file));
    SHOW(fflush(file));
    rewind(file);
    SHOW(fgets(line, sizeof line, file) == line);
    file = freopen(arguments[1], "r", file);
    SHOW(fgetc(file));
    SHOW(fclose(file));
    return count;
}
