// What each view shows, in the words of the guide: for whoever sees it for the first time.
import { html, useEffect, useState } from "./vendor/preact-htm.js";

const STATES = ["State", html`<em>running</em>: a process leads the topology. <em>stopped</em>: nobody does; start it with <code>tidemill run</code>, it goes on from its
  last commit. <em>failing</em>: the last attempt failed and is tried again; the view of the topology says why. <em>paused</em>: somebody paused it. <em>starting</em>: nobody has claimed it yet.`];
const WAITING = ["Waiting", "Records that are appended to its depots, and not processed yet. A number that only grows says that the topology is too slow, or stopped."];

// By topic: the file of the guide, and words with what they mean.
const TOPICS = {
  overview: ["page.md", [["Topology", "The part of a module that processes records in microbatches and keeps their results in PStates. Those in trouble come first."], STATES, WAITING,
    ["Microbatch", "The number of the last one that was committed, and after the stroke which attempt did it: 7/2 is microbatch 7, which failed once."]]],
  topologies: ["modules.md", [STATES, WAITING]],
  depots: ["appends.md", [["Depot", "A log of records. Whoever appends gets an answer when the record is durable."], ["Partitioner", "Says to which partition a record goes."],
    ["Tick", "A depot without records, at which a topology does something from time to time."]]],
  pstates: ["modules.md", [["PState", "What a topology keeps: maps, lists, sets and records, read by paths. Each is spread over the tasks of the module by the first key."],
    ["subindexed", "Each element is a row of its own, so the structure may be large; it is never read whole."], ["private", "Only its own topology reads it."]]],
  queries: ["queries.md", [["Query", "A function of the module that reads PStates of all tasks, as of one commit."]]],
  options: ["operations.md", [["Option", "A setting that holds from the next microbatch on, without a restart."], ["Set at", "One that is set at a topology or a depot wins over one of the module, and that over the default."],
    ["Decided by", "On Kubernetes a Topology resource may decide an option: change it there."]]],
  log: ["page.md", [["Log", "All that happened to the module, newest first: entries of its topologies, its definitions, and options that somebody set. Each line leads to its moment."]]],
  t: ["page.md", [STATES,
    ["Microbatch and version", "Records are processed in microbatches, one after the other, each exactly once. A version is an attempt: it counts up where one failed, or its leader died."],
    ["Phases", html`<em>prime</em> fixes which records are taken, <em>process</em> runs the steps, <em>commit</em> makes all results visible at once.`],
    ["Leader, epoch", "The process that runs the topology. Each time one claims it the epoch counts up, and the log has a line: so a killed process is the line before a claim."],
    ["Standbys", html`Processes that wait to lead: start <code>tidemill run</code> a second time, also on another machine. Without one, a topology whose leader died rests until somebody starts it.
      The leader tells of those that it sees; that takes some seconds.`],
    ["Placement", html`Where a microbatch ran on Spark: <em>inline</em> in the leader, <em>fused</em> in one Spark task, <em>spread</em> over all. The option <code>topology.microbatch.placement</code> decides.`],
    ["Spark's page", html`Off by default: <code>tidemill run --spark-ui</code>, or <code>spark.ui.enabled</code> in a Module. Its address is the leader's own: another machine may need a tunnel.`],
    ["Failed attempts", "Nothing of one counts. It is tried again until it succeeds; mend the code, or let poison records be left out with the option topology.on.record.error."], WAITING]],
  d: ["appends.md", [["Offset", "The place of a record in its partition; offsets are never used again."], ["First offset kept", "Older records were deleted, as retention says, after all topologies had processed them."]]],
  p: ["paths.md", [["Path", html`Says what to read, as a JSON list: <code>["ann"]</code> is the value of the key ann, <code>["ann", ["all"]]</code> each element of it.`],
    ["As of microbatch", "What the PState was then, for as long as the entry is kept."],
    ["By task", "Stored rows of each task. One that has far more than the others is slower than they: then few keys have most of the data, or the first key has few values."]]],
  q: ["queries.md", [["Arguments", "A JSON list with one value for each input."]]],
  graphs: ["graphs.md", [["Graph", "A task graph: nodes that read, compute and write batches. It tells how far it is at each checkpoint."], ["running or killed", "Its last entry is no end: the process works on, or was killed. The same script goes on where it stood."]]],
  datasets: ["graphs.md", [["Dataset", "What a node of a graph left: objects with rows, to be read by other graphs or by this page."]]],
};

// What a place of the page is about.
export const topic = ({ parts }) => topicOf(parts ?? []);
const topicOf = ([kind, module, sort, name]) => kind === "m" && module ? (name ? sort : sort ?? "topologies") : kind ?? "overview";

export function Help({ at }) {
  const [isOpen, setOpen] = useState(false), [guide, words] = TOPICS[Object.hasOwn(TOPICS, topic(at)) ? topic(at) : "overview"];
  useEffect(() => {
    const pressed = (event) => { if (event.key === "?" && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) setOpen((now) => !now); };
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  }, []);
  return html`<details class="help" open=${isOpen} onToggle=${(event) => setOpen(event.target.open)}><summary>What is this?</summary>
    ${isOpen && html`<dl>${words.map(([word, text]) => html`<div key=${word}><dt>${word}</dt><dd>${text}</dd></div>`)}</dl>
    <p class="soft">More is in the guide, in <code>docs/guide/${guide}</code>. The key ? opens and closes this.</p>`}</details>`;
}
