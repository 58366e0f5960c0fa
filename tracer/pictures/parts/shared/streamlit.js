// All that the scripts lean on of how Streamlit builds a page; the rules of style are in dashboard/styles.css.
const APP = '[data-testid="stApp"]';
const isScriptRunning = () => document.querySelector(APP).dataset.testScriptState === "running";
