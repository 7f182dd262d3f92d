// Places of a call tree as columns: count, parent, label, firstChild, sibling (−1: none). Parents stand before children.

// For each place 1 where an outer one has the same label: recursion counts once.
function repeatsOf({ count, parent, label }, isRepeatable) {
  const repeats = new Uint8Array(count);
  for (let i = 1; i < count; i++) {
    if (!isRepeatable(label[i])) continue;
    for (let p = parent[i]; p > 0 && !repeats[i]; p = parent[p]) if (label[p] === label[i]) repeats[i] = 1;
  }
  return repeats;
}

// For each place 1 where an interpreter is between the functions that it runs, or around them all.
function interpretersOf({ count, parent, label }, isInterpreter, isInterpreted) {
  const interprets = new Uint8Array(count), leadsToInterpreted = new Uint8Array(count);
  for (let i = count - 1; i > 0; i--) {
    if (isInterpreted(label[i]) || leadsToInterpreted[i]) leadsToInterpreted[parent[i]] = 1;
    if (isInterpreter(label[i])) interprets[i] = leadsToInterpreted[i];
  }
  return interprets;
}

// Calls `take` for each place right below one that has something; in the stead of one that is left out for those below
// it. `whole` has tree, hasAny(place) and isLeftOut(place), as `Around` asks for them.
function forEachCallee(whole, place, take) {
  const { tree } = whole;
  for (let p = tree.firstChild[place]; p !== -1; p = tree.sibling[p]) {
    if (!whole.hasAny(p)) continue;
    if (whole.isLeftOut(p)) forEachCallee(whole, p, take);
    else take(p);
  }
}
