// What changes many things at once: delete, restore, undo. Each shows first what it would do, and says what it did.

import { call } from "/static/api.js";
import { ask, count, fill, h, size, toast } from "/static/dom.js";

/** @import { Cleared, DryRun, Restored, RestoreRequest } from "../api.d.ts" */

/** @param {number} number */
const messages = (number) => `${count(number)} retained message${number === 1 ? "" : "s"}`;

/** Deletes what matches, after showing how much that is. `after` is called when something has changed.
 * @param {{ filter: string, older_than?: number, client_id?: string }} conditions
 * @param {() => void} after */
export async function remove(conditions, after = () => {}) {
  /** @type {DryRun} */
  let seen;
  try {
    seen = /** @type {DryRun} */ (await call("DELETE", "/api/v1/retained", { ...conditions, dry_run: "true" }));
  } catch (error) {
    toast(error.message);
    return;
  }
  if (!seen.count) { toast("Nothing matches any more."); return; }
  const body = h("div", {},
    h("p", {}, h("b", {}, messages(seen.count)), `, ${size(seen.bytes)}, will be deleted:`),
    h("ul", { class: "sample", tabindex: "0" }, seen.sample.map((topic) => h("li", {}, topic))),
    seen.count > seen.sample.length ? h("p", { class: "soft" }, `and ${count(seen.count - seen.sample.length)} more`) : null,
    h("p", { class: "soft" }, "Subscribers are told. It can be undone as long as the history reaches: Operations lists it."));
  const answer = await ask("Delete", body, [
    { name: "delete", label: `Delete ${count(seen.count)}`, class: "danger" }, { name: null, label: "Cancel" }]);
  if (answer !== "delete") return;
  try {
    const done = /** @type {Cleared} */ (
      await call("DELETE", "/api/v1/retained", { ...conditions, dry_run: "false", token: seen.token }));
    after();
    toast(`Deleted ${count(done.count)}`, { label: "Undo", run: () => undo(done.operation, after) });
  } catch (error) {
    toast(error.message);
  }
}

/** Brings back what was retained, after showing what that changes.
 * @param {string} title
 * @param {{ filter: string, at_ms?: number, offset?: number }} asked a moment
 * @param {boolean} chooses whether there is a choice between missing, changed and exact
 * @param {() => void} after */
export async function restore(title, asked, chooses, after) {
  /** @type {[string, string, Partial<RestoreRequest>][]} */
  const ways = [
    ["missing", "Bring back what is missing now", {}],
    ["changed", "Also set back what has changed since", { replace: true }],
    ["exact", "Exactly as it was: also delete what came later", { replace: true, remove: true }]];
  const preview = h("div", { class: "preview-of", role: "status" }, h("p", { class: "soft" }, "looking…"));
  let way = chooses ? "missing" : "changed";
  /** @param {boolean} dry_run */
  const request = (dry_run) => call("POST", "/api/v1/retained/restore", {}, { ...asked, ...ways.find(([name]) => name === way)?.[2], dry_run });
  const look = async () => {
    const looked = way;
    try {
      const seen = await request(true);
      if (looked === way) fill(preview, changesOf(seen));
    } catch (error) {
      fill(preview, h("p", { class: "problem" }, error.message));
    }
  };
  const body = h("div", { class: "form" },
    chooses ? h("fieldset", {}, h("legend", {}, "How much"), ways.map(([name, label]) => h("label", { class: "check" },
      h("input", { type: "radio", name: "way", value: name, checked: name === way, onchange: () => { way = name; look(); } }), label))) : null,
    preview, h("p", { class: "soft" }, "Subscribers are told. It can be undone: Operations lists it."));
  look();
  /** @type {Restored | null} */
  let done = null;
  await ask(title, body, [{ name: "restore", label: "Restore", class: "main" }, { name: null, label: "Cancel" }], async () => {
    try {
      done = await request(false);
      return "";
    } catch (error) {
      return `Not restored: ${error.message}`;
    }
  });
  if (done) tell(done, after);
}

/** Takes an operation back, after showing what that changes.
 * @param {string} operation
 * @param {() => void} after */
export async function undoWithPreview(operation, after) {
  /** @type {Restored} */
  let seen;
  try {
    seen = await call("POST", `/api/v1/operations/${operation}/undo`, { dry_run: "true" });
  } catch (error) {
    toast(`Not undone: ${error.message}`);
    return;
  }
  const answer = await ask("Undo", h("div", {}, changesOf(seen)), [
    { name: "undo", label: "Undo", class: "main" }, { name: null, label: "Cancel" }]);
  if (answer === "undo") await undo(operation, after);
}

/** @param {string} operation
 * @param {() => void} after */
export async function undo(operation, after) {
  try {
    tell(await call("POST", `/api/v1/operations/${operation}/undo`), after);
  } catch (error) {
    toast(`Not undone: ${error.message}`);
  }
}

/** @param {Restored} done
 * @param {() => void} after */
function tell(done, after) {
  const left = done.present + done.expired + done.refused;
  const text = [done.restored || !done.removed ? `Brought back ${count(done.restored)}` : "", done.removed ? `deleted ${count(done.removed)}` : ""]
    .filter(Boolean).join(", ");
  toast(`${text.charAt(0).toUpperCase()}${text.slice(1)}${left ? `; ${count(left)} left alone` : ""}`,
    done.restored + done.removed ? { label: "Undo", run: () => undo(done.operation, after) } : undefined);
  after();
}

/** What a dry run says.
 * @param {Restored} seen */
function changesOf(seen) {
  const changed = seen.restored + seen.removed;
  /** @type {[number, string][]} */
  const left = [[seen.present, "stay as they are"], [seen.expired, "have expired since"], [seen.refused, "may not be changed"]];
  return h("div", {},
    h("p", {}, changed ? [h("b", {}, messages(changed)), changed === 1 ? " changes." : " change."] : "Nothing would change."),
    seen.changes.length ? h("ul", { class: "sample", tabindex: "0" }, seen.changes.map((one) => h("li", {}, h("span", { class: `what ${one.what}` }, one.what), ` ${one.topic}`))) : null,
    changed > seen.changes.length ? h("p", { class: "soft" }, `and ${count(changed - seen.changes.length)} more`) : null,
    left.filter(([number]) => number).map(([number, what]) => h("p", { class: "soft" }, `${count(number)} ${what}.`)));
}
