"""Prints the symbols that an object file imports, as the library lief reads them."""
import sys

sys.path.insert(0, sys.argv[1])
import lief  # noqa: E402

# The image is part of the file, which must live as long.
file = lief.MachO.parse(sys.argv[2])
for symbol in file.at(0).symbols:
    # N_UNDF and N_EXT of mach-o/nlist.h.
    if symbol.raw_type & 0x0f == 0x01:
        print(symbol.name)
