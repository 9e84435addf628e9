// What a client of run items makes of them: the words, the tools and the end, from the items alone.

/** Frames (or their data) to what was said, called and decided. */
export function reduce(taken) {
  const told = { text: '', tools: [], status: undefined, agent: undefined };
  const byCall = new Map();
  for (const frame of taken) {
    const data = frame.data?.type ? frame.data : frame;
    if (data.type === 'agent_updated_stream_event') told.agent = data.new_agent.name;
    if (data.type === 'run_paused') told.status = 'paused';
    if (data.type === 'run_ended') told.status = data.status;
    if (data.type !== 'run_item_stream_event') continue;
    const { raw_item, output } = data.item;
    switch (data.name) {
      case 'message_output_created':
        told.text += raw_item.content.map((part) => part.text).join('');
        break;
      case 'tool_called':
      case 'handoff_requested':
        byCall.set(raw_item.call_id ?? raw_item.id, { name: raw_item.name ?? raw_item.type, arguments: raw_item.arguments });
        break;
      case 'tool_output':
      case 'handoff_occured':
        byCall.get(raw_item.call_id).output = output ?? raw_item.output;
        break;
    }
  }
  told.tools = [...byCall.values()];
  return told;
}
