// One conversation of MQTT.js with a broker; prints what it saw as JSON and ends with 0.
// Arguments: URL, protocol version (4 or 5), topic prefix, file with the certificate authority or "-".
import fs from "node:fs";
import mqtt from "mqtt";

const [url, version, prefix, authority] = process.argv.slice(2);
const options = {
  protocolVersion: Number(version),
  reconnectPeriod: 0,
  connectTimeout: 10_000,
  ...(authority === "-" ? {} : { ca: fs.readFileSync(authority) }),
};
const deadline = setTimeout(() => {
  console.error("no end after 15 s");
  process.exit(1);
}, 15_000);

const client = await mqtt.connectAsync(url, { ...options, clientId: `${prefix}js` });
const seen = [];
let resolveNext;
client.on("message", (topic, payload, packet) => {
  seen.push({
    topic,
    payload: payload.toString(),
    qos: packet.qos,
    retain: packet.retain,
    userProperties: packet.properties?.userProperties ?? null,
    contentType: packet.properties?.contentType ?? null,
  });
  resolveNext?.();
});
const count = async (wanted) => {
  while (seen.length < wanted) await new Promise((resolve) => (resolveNext = resolve));
};

await client.publishAsync(`${prefix}/kept`, "kept", { qos: 1, retain: true });
const granted = await client.subscribeAsync(`${prefix}/#`, { qos: 2 });
await count(1);
for (const qos of [0, 1, 2]) {
  const properties = version === "5" ? { contentType: "text/plain", userProperties: { a: ["1", "2"] } } : undefined;
  await client.publishAsync(`${prefix}/live`, `${qos}`, { qos, properties });
  await count(2 + qos);
}
await client.unsubscribeAsync(`${prefix}/#`);
await client.publishAsync(`${prefix}/live`, "after unsubscribe", { qos: 1 });

// A second client that goes without DISCONNECT leaves its will behind.
await client.subscribeAsync(`${prefix}/will`, { qos: 1 });
const doomed = await mqtt.connectAsync(url, {
  ...options,
  clientId: `${prefix}gone`,
  will: { topic: `${prefix}/will`, payload: Buffer.from("gone"), qos: 1, retain: false },
});
doomed.on("error", () => {});
doomed.stream.destroy();
await count(5);
await client.endAsync();
clearTimeout(deadline);
console.log(JSON.stringify({ granted: granted.map((g) => g.qos), seen }));
process.exit(0);
