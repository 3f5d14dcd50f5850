// The search runs in a worker, which browsers do not start for pages that are opened from a disk. There, a hidden frame
// does its work.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html>";
      frame.addEventListener("load", () => {
        const inside = frame.contentWindow;
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        const script = inside.document.createElement("script");
        script.src = url;
        script.addEventListener("load", () => {
          this.inside = inside;
          this.waiting.splice(0).forEach((data) => this.postMessage(data));
        });
        inside.document.body.append(script);
      }, { once: true });
      document.body.append(frame);
    }

    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new MessageEvent("message", { data }));
      else this.waiting.push(data);
    }
  };
}
