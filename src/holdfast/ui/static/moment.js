// Moments as people read and write them: to the millisecond, in the browser's own time zone.

/** The year is left out where it is this one.
 * @param {number} ms */
export function exactly(ms) {
  const at = new Date(ms);
  const year = at.getFullYear() === new Date().getFullYear() ? undefined : "numeric";
  return at.toLocaleString(undefined, { year, month: "short", day: "numeric",
    hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });
}

/** The zone in which moments are shown, in few letters. */
export function zone() {
  const parts = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts(new Date());
  return parts.find((part) => part.type === "timeZoneName")?.value ?? "";
}

/** As a field for date and time wants it.
 * @param {number} ms */
export function fieldOf(ms) {
  const local = new Date(ms - new Date(ms).getTimezoneOffset() * 60000);
  return local.toISOString().slice(0, -1);
}

/** @param {string} field
 * @returns {number} 0 for an empty or unfinished one */
export function msOf(field) {
  return field ? new Date(field).getTime() || 0 : 0;
}
