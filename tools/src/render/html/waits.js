// Single long waits: what each was for, who held it and who ended it.

const WAKER_FRAMES = 3;

// Lines of a tip about a blocking call on the timeline; none where no wait was kept.
function describeWait(data, slice) {
  const { waits } = data.meta, key = ([thread, , end]) => thread > slice.thread || (thread === slice.thread && end > slice.begin);
  let low = 0, high = waits.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(waits[middle])) high = middle; else low = middle + 1;
  }
  // Short neighbours may be drawn as one call: the longest wait speaks.
  let longest = null, count = 0;
  for (; low < waits.length && waits[low][0] === slice.thread && waits[low][1] < slice.end; low++) {
    count++;
    if (!longest || waits[low][2] - waits[low][1] > longest[2] - longest[1]) longest = waits[low];
  }
  if (!longest) return [];
  const [, , , object, owner, waker, place] = longest;
  const name = (t) => threadName(data.meta.threads[t]);
  const lines = [["Waited for", object]];
  if (count > 1) lines.push(["Long waits", `${count}; of the longest:`]);
  if (owner !== null) lines.push(["Held by", name(owner)]);
  lines.push(["Woken by", waker === null ? "not known" : name(waker)]);
  const frames = [];
  for (let p = place || 0; p > 0 && frames.length < WAKER_FRAMES; p = data.parent[p]) frames.push(data.nameOf(data.label[p]));
  if (frames.length > 0) lines.push(["Woken in", frames.join(" ← ")]);
  return lines;
}
