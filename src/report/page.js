/* ---- the whole ------------------------------------------------------------------------------- */

/* Shows the numbers of a mark under the pointer or the finger. */
function showTip(event) {
  const tip = document.getElementById('tip'), mark = event.target.closest?.('[data-tip]');
  tip.hidden = !mark;
  if (!mark) return;
  tip.textContent = mark.dataset.tip;
  const {width, height} = tip.getBoundingClientRect();
  const below = event.clientY + 18 + height <= innerHeight;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 6))}px`;
  tip.style.top = `${Math.max(4, below ? event.clientY + 18 : event.clientY - height - 10)}px`;
}

/* The elements of one of the results, or what is wrong with it. */
function show(result, n) {
  try {
    return (result.experiments ? reproduction : bench)(String(n));
  } catch (error) {
    return warning(paragraph('', `Result ${n + 1} cannot be drawn: ${error}`));
  }
}

document.querySelector('main').append(...results.flatMap(show));
document.addEventListener('pointermove', showTip);
document.addEventListener('pointerdown', showTip);
