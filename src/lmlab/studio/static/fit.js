// How large a view is drawn in a lecture: as large as fits on the screen, so that nothing is cut off.

const LARGEST = 2.6,
  SMALLEST = 0.6,
  STEP = 1.08;

/** The largest zoom that fits, found by halving; the smallest one if none does. */
export const searchZoom = (fits, { largest = LARGEST, smallest = SMALLEST } = {}) => {
  const most = Math.round(Math.log(largest / smallest) / Math.log(STEP));
  let low = 0,
    high = most;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (fits(smallest * STEP ** middle)) low = middle;
    else high = middle - 1;
  }
  fits(smallest * STEP ** low);
  return smallest * STEP ** low;
};

const overflows = element =>
  [element, ...element.querySelectorAll(".scroll, pre")].some(each => each.scrollWidth > each.clientWidth + 1);

/** Zoom the stage of a page in a lecture, and draw it at that zoom; without a lecture, remove the zoom. */
export const fitZoom = page => {
  const { stage, result } = page,
    zoom = factor => stage.style.setProperty("zoom", String(factor));
  if (!page.inLecture) {
    if (stage.style.getPropertyValue("zoom")) {
      stage.style.removeProperty("zoom");
      page.draw();
    }
    return;
  }
  const smallest = innerWidth < 700 ? 1 : SMALLEST,
    largest = Math.min(LARGEST, Math.max(smallest, innerWidth / 560));
  searchZoom(
    factor => {
      zoom(factor);
      page.draw();
      return !overflows(stage) && result.scrollHeight <= result.clientHeight + 1;
    },
    { largest, smallest },
  );
};
