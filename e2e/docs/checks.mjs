export async function checkBlock() { throw new Error('todo'); }
