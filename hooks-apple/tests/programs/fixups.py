"""Prints what images' fixups and exports are, as the library lief reads them: a second reader beside the crate's own.

    image PATH
    bind ADDRESS NAME ADDEND LIBRARY KIND        rebase ADDRESS TARGET        symbol NAME ADDRESS
    uuid HEX
"""
import sys

sys.path.insert(0, sys.argv[1])
import lief  # noqa: E402

for path in sys.argv[2:]:
    print("image", path)
    # The image is part of the file, which must live as long.
    file = lief.MachO.parse(path)
    image = file.at(0)
    chains = isinstance(next(iter(image.bindings), None), lief.MachO.ChainedBindingInfo)
    for bind in image.bindings:
        kind = "chain" if chains else "lazy" if bind.binding_class == lief.MachO.DyldBindingInfo.CLASS.LAZY else "eager"
        # A chain has small addends in the slot, others in the table of imports.
        addend = bind.addend + bind.sign_extended_addend if chains else bind.addend
        print("bind", bind.address, bind.symbol.name, addend, bind.library_ordinal, kind)
    for place in image.relocations:
        if isinstance(place, lief.MachO.RelocationObject):
            continue
        target = place.target if chains else image.get_int_from_virtual_address(place.address, 8)
        print("rebase", place.address, target)
    for symbol in image.exported_symbols:
        print("symbol", symbol.name, symbol.value)
    if image.has_uuid:
        print("uuid", bytes(image.uuid.uuid).hex())
