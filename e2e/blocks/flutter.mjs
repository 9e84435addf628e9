// A front end's class as it would be written in Flutter, step by step. One step is left out: after each delta it would
// show only the blocks that grow, and so forget those that are whole, which no stream can make good.

/** Blocks as a `ChangeNotifier` would hold them. */
export class StreamProcessor {
  blocks = [];
  isStreaming = false;
  #inProgress = new Map();
  #toolUseIndexes = new Map();

  handleEvent(msg) {
    switch (msg.type) {
      case 'message_start':
        this.#inProgress.clear();
        this.#toolUseIndexes.clear();
        this.blocks = [];
        this.isStreaming = true;
        break;
      case 'content_block_start': {
        const data = { ...msg.content_block };
        const block = { index: msg.index, type: data.type, data, toolUseId: data.tool_use_id, toolResultError: false };
        this.#inProgress.set(msg.index, block);
        break;
      }
      case 'content_block_delta': {
        const block = this.#inProgress.get(msg.index);
        if (!block) break;
        const { delta } = msg;
        if (delta.type === 'text_delta') {
          block.text = (block.text ?? '') + (delta.text ?? '');
          if (delta.extras?.block_subtype === 'user_stopped') {
            block.type = 'terminal_user_stopped';
          } else if (delta.extras?.block_subtype === 'error') {
            block.type = 'terminal_error';
            block.extras = { ...delta.extras };
          }
        } else if (delta.type === 'thinking_delta') {
          block.thinking = (block.thinking ?? '') + (delta.thinking ?? '');
        }
        if (delta.action_requests != null) block.actionRequests = delta.action_requests;
        break;
      }
      case 'content_block_stop': {
        const block = this.#inProgress.get(msg.index);
        this.#inProgress.delete(msg.index);
        if (!block) break;
        if (block.type === 'tool_result') {
          const idx = this.#toolUseIndexes.get(block.toolUseId);
          if (idx != null) {
            this.blocks = [...this.blocks];
            const result = { toolResult: block.data.content, toolResultError: block.data.status === 'error' };
            this.blocks[idx] = { ...this.blocks[idx], ...result };
            break;
          }
        }
        if (block.type === 'tool_use') this.#toolUseIndexes.set(block.data.id, this.blocks.length);
        this.blocks = [...this.blocks, block];
        break;
      }
      case 'message_stop':
        this.isStreaming = false;
        break;
    }
  }
}
